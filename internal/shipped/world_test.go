package shipped

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

const provider = "payments/charge"

var quiet = slog.New(slog.DiscardHandler)

// world is one history while it happens: true time, a server, and instances.
type world struct {
	*plan
	r      *rand.Rand // of the goroutine that runs the history
	begin  time.Time
	server *server
	states *states
	admin  *coordinator.Admin
	links  []*link

	mu        sync.Mutex
	used      map[int64]bool // instants at which something happens
	bursts    map[int64]bool // instants at which much happens at once: a process goes on
	sum       uint64         // of the trace
	lines     []string       // of the trace, if it is kept
	keep      bool
	instances []*instance
	grants    []grant
	late      []string // callers that were not answered in time, instances that do not settle
	stats     stats
	levels    newestLevel
	wg        sync.WaitGroup
}

// stats counts what a history reached.
type stats struct {
	windows, judged, permits, whole, callers int
	events                                   [actions]int
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
	line := fmt.Sprintf("%d %s %s %T", w.now(), who, what, m)
	w.mu.Lock()
	defer w.mu.Unlock()
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	w.sum += h.Sum64() // the order within an instant means nothing
	if w.keep {
		w.lines = append(w.lines, fmt.Sprintf("%s %.300v", line, m))
	}
}

// newLink returns a link with delays of its own.
func (w *world) newLink(name string) *link {
	l := &link{w: w, name: name}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links = append(w.links, l)
	return l
}

// play runs the history of a plan in the present bubble.
func play(t *testing.T, p *plan, keep bool) *world {
	t.Helper()
	w := &world{plan: p, r: rand.New(rand.NewPCG(p.seed, 1)), begin: time.Now(), levels: newestLevel{of: map[string]int64{}}, used: map[int64]bool{}, bursts: map[int64]bool{}, keep: keep}
	w.server = newServer(p.seed|1, w.now)
	w.states = newStates(w.now, w.server.store)
	w.server.onCommit = w.states.commit
	l := w.newLink("admin")
	l.calm = true
	client := l.client()
	defer client.Close()
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	w.admin = admin
	if _, err := admin.Put(t.Context(), provider, p.policy, coordinator.AnyRevision); err != nil {
		t.Fatal(err)
	}
	for range p.size {
		w.join()
	}
	w.at(0, w.noise)
	w.at(0, w.expire)
	for _, e := range p.events {
		w.until(e.at)
		w.happen(e)
	}
	w.until(p.healed)
	w.heal()
	w.until(p.end)
	w.settles()
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

// settles checks that every instance that lives is active, long after the last fault.
func (w *world) settles() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.instances {
		if w.settled > w.end || i.crashed || i.leaving {
			continue
		}
		if st := i.limiter.Status(); st.State != quota.StateActive {
			w.late = append(w.late, fmt.Sprintf("%s is %s: %s", i.name, st.State, st.Problem))
		}
	}
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
	w.mu.Lock()
	next := w.now() + 1 + w.r2().Int64N(240*ms)
	w.mu.Unlock()
	if w.server.writable() {
		_, _ = w.server.serve(putOf("others", "write too"))
	}
	w.at(next, w.noise)
}

// r2 is for what happens aside of the history's goroutine; guarded by mu.
func (w *world) r2() *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, uint64(w.now())))
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
	return append([]*instance(nil), w.instances...)
}

// heal ends all faults.
func (w *world) heal() {
	w.server.mu.Lock()
	w.server.leaderless, w.server.frozen = 0, 0
	w.server.mu.Unlock()
	w.mu.Lock()
	links := append([]*link(nil), w.links...)
	w.mu.Unlock()
	for _, l := range links {
		l.heal()
	}
}

// operate runs something that an operator does, aside: it may take long.
func (w *world) operate(do func(ctx context.Context)) {
	w.wg.Go(func() { do(context.Background()) })
}

// setPolicy changes the policy.
func (w *world) setPolicy(edit func(p *quota.Policy)) {
	w.operate(func(ctx context.Context) {
		_, _ = w.admin.Update(ctx, []string{provider}, func(old []coordinator.Stored) ([]*quota.Policy, error) {
			p := old[0].Policy
			edit(&p)
			return []*quota.Policy{&p}, nil
		})
	})
}
