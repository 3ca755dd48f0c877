package histories

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

var quiet = slog.New(slog.DiscardHandler)

// world is one history while it happens: true time, a server, and instances.
type world struct {
	*plan
	t      *testing.T
	begin  time.Time
	server *server
	fleets []*fleet // by provider
	admin  *admin.Client
	links  []*link

	mu        sync.Mutex
	used      map[int64]bool // instants at which something happens
	bursts    map[int64]bool // instants at which much happens at once: a process goes on
	sum       uint64         // of the trace
	lines     []string       // of the trace, if it is kept
	keep      bool
	instances []*instance
	wrong     []string       // what was seen to go wrong on the way
	forged    bool           // somebody has written what no instance would
	pushed    map[string]int // by instance: how often the provider has asked it for a pause
	stats     stats
	wg        sync.WaitGroup
}

// stats counts what a history reached.
type stats struct {
	windows, judged, permits, paid, whole, callers, spans, lent, held, keyed, overridden, back int
	events                                                                                     [actions]int
}

// now is true time.
func (w *world) now() int64 { return int64(time.Since(w.begin)) }

// at has f run at a true time, or soon after it: no two things happen at one instant, so
// that time alone puts them in order, but where a process goes on that stood still: what
// has come for it meanwhile is there at once.
func (w *world) at(t int64, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	for t = max(t, now+1); w.used[t] && !w.bursts[t]; t++ {
	}
	w.used[t] = true
	time.AfterFunc(time.Duration(t-now), f)
}

// trace notes something that happened.
func (w *world) trace(what, who string, m proto.Message) {
	h := fnv.New64a()
	now := w.now()
	_, _ = h.Write(strconv.AppendInt(nil, now, 10))
	_, _ = h.Write([]byte(what + " " + who))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sum += h.Sum64() // the order within an instant means nothing
	if w.keep {
		w.lines = append(w.lines, fmt.Sprintf("%d %s %s %T %.300v", now, who, what, m, m))
	}
}

// complain notes what must not be.
func (w *world) complain(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf("%.3f s: %s", float64(w.now())/1e9, fmt.Sprintf(format, args...)))
}

// newLink returns a link with delays of its own.
func (w *world) newLink(name string) *link {
	l := &link{w: w, name: name, told: map[string]int64{}, renewed: map[int64]int64{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links = append(w.links, l)
	return l
}

// play runs the history of a plan in the present bubble.
func play(t *testing.T, p *plan, keep bool) *world {
	t.Helper()
	w := &world{plan: p, t: t, begin: time.Now(), used: map[int64]bool{}, bursts: map[int64]bool{}, keep: keep, pushed: map[string]int{}}
	w.server = newServer(p.seed|1, w.now)
	for _, name := range p.providers {
		w.fleets = append(w.fleets, &fleet{world: w, lentOf: map[quota.Window]int64{}, states: newStates(w.now, w.server.store, name)})
	}
	w.server.onCommit = func() {
		for _, f := range w.fleets {
			f.commit()
		}
	}
	w.server.onExpiry = w.leaseEnds
	l := w.newLink("admin")
	l.calm = true
	client := l.client()
	defer client.Close()
	operator, err := admin.New(client, admin.Options{Author: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	w.admin = operator
	for _, name := range p.providers {
		if _, err := operator.Put(t.Context(), name, p.policy); err != nil {
			t.Fatal(err)
		}
	}
	for range p.size {
		w.join()
	}
	w.at(0, w.noise)
	w.at(0, w.expire)
	for _, e := range p.events {
		w.until(min(e.at, p.outage))
		if e.at > p.outage && w.server.outage == 0 {
			w.outages()
		}
		w.until(e.at)
		w.happen(e)
	}
	w.until(min(p.healed, p.outage))
	if p.kind == hold {
		w.outages()
	} else {
		w.heal()
	}
	w.until(p.end)
	w.settles()
	w.survives()
	for _, i := range w.all() {
		w.wg.Go(i.close)
	}
	ended := make(chan struct{})
	go func() {
		w.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		panic("something does not end") // the bubble would not either
	}
	return w
}

// settles checks that every instance that lives is active, long after the last fault, and
// that no limiter has noticed that it issued too much.
func (w *world) settles() {
	for _, i := range w.all() {
		for n, l := range i.limiters() {
			st := l.Status()
			if st.OverIssued > 0 {
				w.complain("%s: %d permits over its share", i.name, st.OverIssued)
			}
			if w.serves(i, w.fleets[n]) && st.State != quota.StateActive {
				w.complain("%s is %s: %s", i.name, st.State, st.Problem)
			}
		}
	}
}

// serves reports whether an instance should serve callers at the end, as it lives and has a policy, and the last fault is
// long over.
func (w *world) serves(i *instance, f *fleet) bool {
	v := &f.newest().View
	return w.settled <= w.end && w.kind != hold && w.kind != calm && !w.forged && !f.heldBack(w.end, w.end) && !i.gone() &&
		v.Policy != nil && v.Policy.Mode != quota.ModePause && len(v.Policy.Unsupported()) == 0 && v.Policy.LimitsAt(epoch+w.now()) != nil
}

// until lets true time pass.
func (w *world) until(t int64) {
	if d := t - w.now(); d > 0 {
		pass(time.Duration(d))
	}
}

func (w *world) over() bool { return w.now() >= w.end }

// noise is what others write to etcd: revisions without an event for us.
func (w *world) noise() {
	if w.over() {
		return
	}
	next := w.now() + 1 + w.aside("noise").Int64N(240*ms)
	if w.server.writable() {
		_, _ = w.server.serve(putOf("others", "write too"))
	}
	w.at(next, w.noise)
}

// aside draws what happens now: it depends on the seed, the instant and the name only.
func (w *world) aside(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write(strconv.AppendInt([]byte(name), w.now(), 10))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// expire ends leases, as often as etcd looks.
func (w *world) expire() {
	if w.over() {
		return
	}
	w.server.expire()
	w.at(w.now()+500*ms, w.expire)
}

func (w *world) all() []*instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.instances)
}

// heal ends all faults.
func (w *world) heal() {
	w.server.mu.Lock()
	w.server.leaderless, w.server.frozen = 0, 0
	w.server.mu.Unlock()
	w.startAgain(w.now())
	w.mu.Lock()
	links := slices.Clone(w.links)
	w.mu.Unlock()
	for _, l := range links {
		l.heal()
	}
}

// outages ends etcd for good: nothing new is taken from now on, and nothing comes through any more,
// at once or when it has drained its streams.
func (w *world) outages() {
	w.server.mu.Lock()
	w.server.outage = w.now()
	w.server.mu.Unlock()
	for _, f := range w.fleets {
		f.outages()
	}
	if w.drain > 0 {
		w.shutDown(w.drain, forGood)
		return
	}
	w.cutAll()
}

// cutAll lets nothing come through any more.
func (w *world) cutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.links {
		l.kill()
	}
}

// operate runs something that an operator does, aside: it may take long.
func (w *world) operate(do func(ctx context.Context)) {
	w.wg.Go(func() { do(context.Background()) })
}

// setPolicy changes a policy.
func (w *world) setPolicy(f *fleet, edit func(p quota.Policy) *quota.Policy) {
	w.operate(func(ctx context.Context) {
		_, _ = w.admin.Update(ctx, []string{f.provider}, func(old []admin.Stored) ([]*quota.Policy, error) {
			p := old[0].Policy
			if len(p.Limits) == 0 {
				p = w.policy
			}
			return []*quota.Policy{edit(p)}, nil
		})
	})
}

// deletePolicy deletes a policy.
func (w *world) deletePolicy(f *fleet) {
	w.mu.Lock()
	f.unset = true
	w.mu.Unlock()
	w.operate(func(ctx context.Context) { _, _ = w.admin.Delete(ctx, f.provider, "no more") })
}
