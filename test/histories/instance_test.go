package histories

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// instance is one process: a session and a limiter of each provider, both as shipped, on
// a machine with clocks of its own.
type instance struct {
	w      *world
	name   string
	r      *rand.Rand // of its beginning
	modest bool       // its callers want little
	reader reader
	clock  *clock.Clock
	link   *link
	client *clientv3.Client

	measuring sync.Mutex
	ntp       *ntp.Watch   // of kind measured
	servers   []timeServer // that it asks

	// Guarded by world.mu.
	session *coordinator.Session // nil until it runs
	opened  []*consumer.Limiter
	drained int64            // monotonic: before it nothing is issued
	drains  int              // how often the application asked for a pause
	rests   int64            // until then its callers want nothing
	began   map[string]int64 // by provider: the revision with which its history begins
	knew    []int64          // by provider: up to which revision, when etcd went away for good
	crashed bool             // nobody calls any more, and nothing comes through
	leaving bool
	ended   bool // it has no callers
}

// join starts an instance on a machine of its own, at a time of its own.
func (w *world) join() *instance {
	n := len(w.all())
	r := rand.New(rand.NewPCG(w.seed, uint64(1000+n)))
	return w.start(r)
}

// start starts a process on a machine of its own.
func (w *world) start(r *rand.Rand) *instance {
	m := newMachine(r, w.osError())
	w.mu.Lock()
	i := &instance{w: w, name: fmt.Sprintf("i%d", len(w.instances)), r: r, reader: reader{w: w, machine: m}}
	i.modest = r.IntN(3) == 0 && w.kind != calm
	w.instances = append(w.instances, i)
	w.mu.Unlock()
	i.clock = clock.OnHost(i.reader.read, i.suspended())
	i.link = w.newLink(i.name)
	i.link.calm = w.kind == calm
	phase := 1 + r.Int64N(50*ms)
	if w.kind == measured {
		w.at(w.now()+phase, i.measure)
	} else {
		i.launch(phase)
	}
	return i
}

// launch lets the process run after d.
func (i *instance) launch(d int64) {
	i.w.wg.Go(func() {
		pass(time.Duration(d))
		i.run()
	})
}

// run lives as long as the instance.
func (i *instance) run() {
	w := i.w
	i.client = i.link.client()
	s, err := coordinator.Join(clock.With(context.Background(), i.clock), i.client, coordinator.Options{
		Name: i.name, TTL: 2 * time.Second, Logger: heard, Lazy: true,
	})
	if err != nil {
		panic(err)
	}
	var opened []*consumer.Limiter
	for _, provider := range w.providers {
		l, err := consumer.Open(context.Background(), feed.Over[feed.Source](&watched{feed.Inside(s), i.noteBegan, i.noteLent(), i.notePaid}), provider, consumer.Options{Logger: quiet})
		if err != nil {
			panic(err)
		}
		opened = append(opened, l)
	}
	w.mu.Lock()
	i.session, i.opened = s, opened
	ended := i.ended
	w.mu.Unlock()
	if ended { // before it began
		i.close()
		return
	}
	for n, l := range opened {
		ways := []func(*caller){(*caller).takeAgain, (*caller).waitAgain}
		if w.keyed {
			ways = append(ways, (*caller).takeAgain, (*caller).waitAgain)
		}
		for k, again := range ways {
			c := &caller{instance: i, f: w.fleets[n], l: l, r: rand.New(rand.NewPCG(w.seed, i.r.Uint64())), keyed: k > 1}
			w.wg.Go(func() { again(c) })
		}
	}
}

func (i *instance) noteBegan(provider string, revision int64) {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	if i.began == nil {
		i.began = map[string]int64{}
	}
	i.began[provider] = revision
}

// noteLent returns what notes the permits that the instance has lent of each window.
func (i *instance) noteLent() func(provider string, uses []window.Use) {
	last := map[string]map[quota.Window]int64{}
	return func(provider string, uses []window.Use) { // under the gate's lock
		f := i.w.fleets[slices.Index(i.w.providers, provider)]
		f.lending.Lock()
		defer f.lending.Unlock()
		if last[provider] == nil {
			last[provider] = map[quota.Window]int64{}
		}
		for _, u := range uses {
			if n := u.Lent - last[provider][u.Window]; n > 0 {
				last[provider][u.Window] = u.Lent
				f.lentOf[u.Window] += n
			}
		}
	}
}

// notePaid notes permits that have paid a debt: nobody was granted them, and they count the same.
func (i *instance) notePaid(provider string, p *grant) {
	w := i.w
	w.trace(fmt.Sprint("pays ", p.permits, " of ", p.windows), i.name, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if i.crashed {
		return
	}
	p.at = i.reader.now()
	p.wall = i.clock.WallAt(i.reader.at(p.at).Mono)
	for _, win := range p.windows {
		p.wall = min(max(p.wall, win.Start()), win.End()-1)
	}
	if p.span = (span{p.wall, p.wall + 1}); p.key == "" && w.budget > 0 || p.key != "" && w.keyBudget > 0 {
		p.long = time.Unix(0, quota.WindowAt(budgetWindow, p.wall).Start())
	}
	f := w.fleets[slices.Index(w.providers, provider)]
	if f.paid == nil {
		f.paid = map[string][]*grant{}
	}
	f.paid[p.key] = append(f.paid[p.key], p)
	w.stats.paid += int(p.permits)
}

// limiters are the instance's, none until it runs.
func (i *instance) limiters() []*consumer.Limiter {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	return i.opened
}

// gone reports whether the process is dead or leaves.
func (i *instance) gone() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	return i.crashed || i.leaving
}

// caller takes permits of a provider.
type caller struct {
	*instance
	f *fleet
	l *consumer.Limiter
	r *rand.Rand

	keyed bool   // it asks for keys
	key   string // for which it asks now

	burst *[]func() // of a process that goes on: notes to be made at its end
}

// pause returns how long the caller pauses, and whether it goes on.
func (c *caller) pause(most int64) (time.Duration, bool) {
	w := c.w
	now := w.now()
	at := now + 1 + c.r.Int64N(most)
	if through := c.reader.until(at); through > at {
		at = through + 1 + c.r.Int64N(10*ms)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(at - now), !c.ended && now < w.end
}

// running reports whether callers run now: they may have been stopped in their sleep.
func (i *instance) running() bool {
	i.w.mu.Lock()
	defer i.w.mu.Unlock()
	now := i.w.now()
	return i.opened != nil && !i.ended && now >= i.rests && i.reader.until(now) == now
}

// takeAgain takes what there is, again and again, and now and then some permits only.
func (c *caller) takeAgain() {
	until, grown := int64(0), 0
	for {
		d, ok := c.pause(c.w.every)
		if !ok {
			return
		}
		pass(d)
		if c.running() {
			c.take()
		}
		if !c.w.plain && c.w.kind != restore {
			c.judgePause(c.l.Status(), &until, &grown)
		}
	}
}

func (c *caller) take() {
	w := c.w
	n, kind := 1+c.r.Int64N(4), c.r.IntN(8)
	if w.kind == inflight {
		c.call(n, kind)
		return
	}
	if c.keyed {
		c.takeOfKey(n, kind)
		return
	}
	switch {
	case w.now() > w.healed || w.kind == calm: // the whole limit shall be used
		c.granted(c.l.TryTake(math.MaxInt32), true)
	case (c.modest || w.keyed) && n > 1: // it leaves something for later
	case kind < 3:
		c.granted(c.l.TryTake(n), true)
	case kind < 5:
		c.takeOne(n)
	case kind < 6:
		c.giveBack(c.l.TryTake(n))
	default:
		c.granted(c.l.TryTake(math.MaxInt32), true)
	}
}

// takeOfKey takes permits of a key, and gives some back.
func (c *caller) takeOfKey(n int64, kind int) {
	c.key = keyNames[c.r.IntN(len(keyNames))]
	key := c.l.Key(c.key)
	switch {
	case c.w.now() > c.w.healed: // the whole limit shall be used
		c.granted(key.TryTake(n), true)
	case kind < 2:
		c.giveBack(key.TryTake(n))
	case kind == 2:
		if p, err := key.Take(context.Background(), n, 0); err == nil {
			c.granted(p, true)
		}
	default:
		c.granted(key.TryTake(n), true)
	}
}

func (c *caller) takeOne(n int64) {
	if p, err := c.l.Take(context.Background(), n, 0); err == nil {
		c.granted(p, true)
	}
}

// giveBack gives a permit back, once or twice, at once or later; or it costs more.
func (c *caller) giveBack(p consumer.Permit) {
	switch c.r.IntN(4) {
	case 0:
		if !p.Release() {
			c.granted(p, true)
		}
		p.Release()
	case 1:
		g := c.granted(p, true)
		c.w.at(c.w.now()+1+c.r.Int64N(600*ms), func() {
			if c.running() && p.Release() {
				c.returned(g)
			}
		})
	case 2:
		c.granted(p, true)
		if p.N() > 0 && !c.w.plain && c.w.kind != calm && (c.w.indebted || c.r.IntN(4) == 0) {
			_ = p.Settle(p.N() + 1 + c.r.Int64N(5))
		}
	default:
		if g := c.granted(p, true); p.Release() {
			c.returned(g)
		}
	}
}

// waitAgain waits for permits, again and again, and must be answered in time.
func (c *caller) waitAgain() {
	w := c.w
	for {
		d, ok := c.pause(2000 * ms)
		if !ok {
			return
		}
		pass(d)
		if !c.running() {
			continue
		}
		most := time.Duration(c.r.Int64N(2 * int64(w.policy.Settle)))
		n := 1 + max(0, c.r.Int64N(12)-8)
		if w.now() > w.healed || w.kind == calm {
			n = 1 // one that waits for more than there is leaves the rest unused
		}
		w.mu.Lock()
		w.stats.callers++
		w.mu.Unlock()
		began, from := c.reader.read().Mono, w.now()
		take := c.l.Take
		if c.keyed {
			c.key = keyNames[c.r.IntN(len(keyNames))]
			take = c.l.Key(c.key).Take
		}
		p, err := take(context.Background(), n, most)
		took := time.Duration(c.reader.read().Mono - began)
		if took > most+most/500+time.Millisecond+c.reader.late(from) && !c.reader.stopped(from, w.now()) {
			w.complain("%s: a caller that waits for %v was answered after %v: %v", c.name, most, took, err)
		}
		switch {
		case err != nil:
		case w.kind == inflight:
			c.begins(p)
		default:
			c.granted(p, false)
		}
	}
}

// granted notes permits; certain says that they were issued just now.
func (c *caller) granted(p consumer.Permit, certain bool) *grant {
	n := p.N()
	if n == 0 {
		return nil
	}
	w, at := c.w, c.reader.now()
	g := &grant{at: at, permits: n, key: c.key, span: span{p.Start().UnixNano(), p.Until().UnixNano()}}
	start := p.Start().UnixNano()
	g.wall = max(start, c.clock.WallAt(c.reader.at(at).Mono))
	if c.burst == nil {
		c.describe(g, start, certain)
	} else {
		*c.burst = append(*c.burst, func() { c.describe(g, start, certain) })
	}
	w.trace(fmt.Sprint("takes ", n, " of ", start), c.name, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.crashed {
		return nil
	}
	if mono := c.reader.at(at).Mono; mono < c.drained && certain {
		w.wrong = append(w.wrong, fmt.Sprintf("%s issues %d permits %v before its pause ends", c.name, n, time.Duration(c.drained-mono)))
	}
	w.stats.permits += int(n)
	c.f.grants = append(c.f.grants, g)
	return g
}

// describe notes what a limiter knew that has issued permits of the window that starts at
// start. To ask it moves it on: so it is asked when a burst is over.
func (c *caller) describe(g *grant, start int64, certain bool) {
	st := c.l.Status()
	c.w.mu.Lock()
	g.first = c.began[c.f.provider]
	c.w.mu.Unlock()
	g.stale, g.policy = st.State == quota.StateStale, st.PolicyRevision
	if certain {
		g.id = st.Incarnation
	}
	shortest := st.Shortest()
	moved := shortest.Start.UnixNano() != start
	if g.key != "" { // its permit is of the part that the key's window and the provider's have in common
		moved = g.span.from < shortest.Start.UnixNano() || g.span.to > shortest.End.UnixNano()
	}
	for _, u := range st.Limits {
		if u.Limit.Window > quota.MaxWindow {
			g.long = u.Start
			continue
		}
		win := quota.WindowAt(u.Limit.Window, u.Start.UnixNano())
		if moved || win.Start() != u.Start.UnixNano() { // it has moved on, or has another shape
			win = quota.WindowAt(u.Limit.Window, g.wall)
		}
		g.windows = append(g.windows, win)
	}
}

// returned notes that permits were given back: they may be issued again.
func (c *caller) returned(g *grant) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if g != nil {
		g.permits = 0
	}
}

// stand lets the process stand still: for a while nothing comes, nothing goes, and no
// caller runs. On going on a caller is mostly the first to run.
func (i *instance) stand(d int64) {
	w := i.w
	now, r := w.now(), w.aside(i.name)
	comes := d + r.Int64N(4)
	w.mu.Lock()
	w.bursts[now+comes] = true
	w.mu.Unlock()
	i.reader.stop(span{now, now + d})
	i.link.block(&i.link.stands, comes)
	w.at(now+d, func() {
		for n, l := range i.limiters() {
			c := caller{instance: i, f: w.fleets[n], l: l, r: r, burst: new([]func())}
			for c.running() && r.IntN(12) > 0 {
				switch r.IntN(4) {
				case 0:
					c.take()
				case 1:
					c.granted(l.TryTake(1+r.Int64N(40)), true)
				default:
					c.takeOne(1)
				}
			}
			for _, describe := range *c.burst {
				describe()
			}
		}
	})
}

// sleep suspends the machine: the process stands still, and so does its monotonic clock.
// A sleep shorter than the clock's threshold goes unseen, which only a clock error above
// that allows for.
func (i *instance) sleep(d int64) {
	if w := i.w; !w.followsLeads() && w.kind != measured {
		d += 30*ms + 2*w.osError()
	}
	// Somebody may read the clock before, and the monotonic one has moved on after.
	if now := i.w.now(); i.reader.sleep(span{now + 1 + i.w.aside(i.name).Int64N(ms), now + d}) {
		i.stand(d)
	}
}

// suspended tells how long the machine has been suspended, as some operating systems do.
func (i *instance) suspended() func() (time.Duration, bool) {
	if i.w.kind != measured || i.r.IntN(2) == 0 {
		return nil
	}
	return func() (total time.Duration, known bool) {
		t := i.reader.now()
		i.reader.machine.mu.Lock()
		defer i.reader.machine.mu.Unlock()
		return time.Duration(i.reader.slept(t)), true
	}
}

// crash ends the process: its callers are gone, and nothing comes through.
func (i *instance) crash() {
	i.w.mu.Lock()
	i.crashed, i.ended = true, true
	i.w.mu.Unlock()
	i.link.kill()
}

// extreme is the number of a clock that is set as far ahead as may be.
const extreme = -1

// leave ends the instance: announced, or at once. Its callers go on until they are
// refused.
func (i *instance) leave(announced bool) {
	w := i.w
	w.mu.Lock()
	gone := i.leaving || i.ended || i.session == nil || w.kind == calm && i == w.instances[0]
	i.leaving = true
	w.mu.Unlock()
	if gone {
		return
	}
	w.wg.Go(func() {
		if announced {
			_ = i.session.Shutdown(context.Background())
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
