package shipped

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// instance is one process: a session and a limiter, both as shipped, on a machine with
// clocks of its own.
type instance struct {
	w       *world
	name    string
	r       *rand.Rand // of its beginning
	modest  bool       // its callers want little
	machine *machine
	clock   *clock.Clock
	link    *link
	client  *clientv3.Client

	// Guarded by world.mu.
	session *coordinator.Session // nil until it runs
	limiter *consumer.Limiter
	stands  []span // no caller runs
	crashed bool   // nobody calls any more, and nothing comes through
	leaving bool
	ended   bool // it has no callers
}

// grant is permits issued at once.
type grant struct {
	at      int64 // true time
	start   int64 // of their window by the shortest limit, corrected wall time
	permits int64
	who     *instance
	until   int64
}

// join starts an instance, at a time of its own.
func (w *world) join() *instance {
	w.mu.Lock()
	n := len(w.instances)
	i := &instance{w: w, name: fmt.Sprintf("i%d", n), r: rand.New(rand.NewPCG(w.seed, uint64(1000+n)))}
	w.instances = append(w.instances, i)
	w.mu.Unlock()
	i.machine = newMachine(w, i.r, errorBound(w.e))
	i.modest = i.r.IntN(3) == 0
	i.clock = clock.Driven(i.machine.read)
	i.link = w.newLink(i.name)
	i.link.calm = w.calm
	phase := time.Duration(1 + i.r.Int64N(50*ms))
	w.wg.Go(func() {
		pass(phase)
		i.run()
	})
	return i
}

// run lives as long as the instance.
func (i *instance) run() {
	w := i.w
	i.client = i.link.client()
	s, err := coordinator.Join(context.Background(), i.client, coordinator.Options{
		Name: i.name, TTL: 2 * time.Second, Logger: quiet, Clock: i.clock, Lazy: true, Weight: w.weight(i.r),
	})
	if err != nil {
		panic(err)
	}
	l, err := consumer.Open(context.Background(), &watched{s, &w.levels}, provider, consumer.Options{Logger: quiet})
	if err != nil {
		panic(err)
	}
	w.mu.Lock()
	i.session, i.limiter = s, l
	w.mu.Unlock()
	takes, waits := rand.New(rand.NewPCG(w.seed, i.r.Uint64())), rand.New(rand.NewPCG(w.seed, i.r.Uint64()))
	w.wg.Go(func() { i.take(takes) })
	w.wg.Go(func() { i.wait(waits) })
}

// pause returns how long a caller of the instance pauses, and whether it goes on.
func (i *instance) pause(r *rand.Rand, most int64) (time.Duration, bool) {
	w := i.w
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	at := now + 1 + r.Int64N(most)
	if through := blocked(at, i.stands); through > at {
		at = through + 1 + r.Int64N(10*ms)
	}
	return time.Duration(at - now), !i.ended && now < w.end
}

// running reports whether callers run now: they may have been stopped in their sleep.
func (i *instance) running() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	now := i.w.now()
	return i.limiter != nil && !i.ended && blocked(now, i.stands) == now
}

// take takes what there is, again and again, and now and then some permits only.
func (i *instance) take(r *rand.Rand) {
	for {
		d, ok := i.pause(r, i.w.every)
		if !ok {
			return
		}
		pass(d)
		if i.running() {
			i.takeOnce(r)
		}
	}
}

func (i *instance) takeOnce(r *rand.Rand) {
	w := i.w
	n, kind := 1+r.Int64N(4), r.IntN(8)
	switch {
	case w.now() > w.healed: // the whole limit shall be used
		i.granted(i.limiter.TryTake(math.MaxInt32))
	case i.modest && n > 1: // it leaves something for later
	case kind < 3:
		i.granted(i.limiter.TryTake(n))
	case kind < 5:
		if p, err := i.limiter.Take(context.Background(), n, 0); err == nil {
			i.granted(p)
		}
	case kind < 6:
		p := i.limiter.TryTake(n)
		if !p.Release() {
			i.granted(p)
		}
	default:
		i.granted(i.limiter.TryTake(math.MaxInt32))
	}
}

// wait waits for permits, again and again, and must be answered in time.
func (i *instance) wait(r *rand.Rand) {
	w := i.w
	for {
		d, ok := i.pause(r, 2000*ms)
		if !ok {
			return
		}
		pass(d)
		if !i.running() {
			continue
		}
		most := time.Duration(r.Int64N(2 * int64(w.policy.Settle)))
		n := 1 + max(0, r.Int64N(12)-8)
		if w.now() > w.healed {
			n = 1 // one that waits for more than there is leaves the rest unused
		}
		w.mu.Lock()
		w.stats.callers++
		w.mu.Unlock()
		began := i.machine.read().Mono
		p, err := i.limiter.Take(context.Background(), n, most)
		if took := time.Duration(i.machine.read().Mono - began); took > most+most/500+time.Millisecond {
			w.mu.Lock()
			w.late = append(w.late, fmt.Sprintf("%s: a caller that waits for %v was answered after %v: %v", i.name, most, took, err))
			w.mu.Unlock()
		}
		if err == nil {
			i.granted(p)
		}
	}
}

// granted notes permits.
func (i *instance) granted(p consumer.Permit) {
	if p.N() == 0 {
		return
	}
	w := i.w
	w.trace(fmt.Sprint("takes ", p.N(), " of ", p.Start().UnixNano()), i.name, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.crashed {
		return
	}
	w.stats.permits += int(p.N())
	w.grants = append(w.grants, grant{w.now(), p.Start().UnixNano(), p.N(), i, p.Until().UnixNano()})
}

// stand lets the process stand still: for a while nothing comes, nothing goes, and no
// caller runs. On going on a caller is the first to run.
func (i *instance) stand(d int64) {
	w := i.w
	w.mu.Lock()
	i.stands = append(i.stands, span{w.now(), w.now() + d})
	w.bursts[w.now()+d] = true
	w.mu.Unlock()
	i.link.block(&i.link.stands, d)
	r := rand.New(rand.NewPCG(w.seed, uint64(w.now())))
	w.at(w.now()+d, func() {
		for i.running() && r.IntN(12) > 0 {
			if r.IntN(4) == 0 {
				i.takeOnce(r)
			} else if p, err := i.limiter.Take(context.Background(), 1, 0); err == nil {
				i.granted(p)
			}
		}
	})
}

// sleep suspends the machine: the process stands still, and so does its monotonic clock,
// where the policy's clock error covers that.
func (i *instance) sleep(d int64) {
	if followsLeads(i.w.e) {
		i.machine.sleep(d)
	}
	i.stand(d)
}

// crash ends the process: its callers are gone, and nothing comes through.
func (i *instance) crash() {
	i.w.mu.Lock()
	i.crashed, i.ended = true, true
	i.w.mu.Unlock()
	i.link.mu.Lock()
	i.link.dead = true
	i.link.mu.Unlock()
}

// leave ends the instance: announced, or at once. Its callers go on until they are
// refused.
func (i *instance) leave(announced bool) {
	w := i.w
	w.mu.Lock()
	gone := i.leaving || i.ended || i.session == nil
	i.leaving = true
	w.mu.Unlock()
	if gone {
		return
	}
	w.wg.Go(func() {
		if announced {
			_ = i.session.Leave(context.Background())
		} else {
			_ = i.session.Close()
		}
		pass(100 * time.Millisecond)
		w.mu.Lock()
		i.ended = true
		w.mu.Unlock()
	})
}

// close ends everything of the instance.
func (i *instance) close() {
	i.w.mu.Lock()
	i.ended = true
	s := i.session
	i.w.mu.Unlock()
	if s != nil {
		_ = s.Close()
		_ = i.client.Close()
	}
}
