package window

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// fixed plans the same share for every window of each length.
type fixed struct {
	mu        sync.Mutex
	shares    map[time.Duration]int64
	burst     int64 // 0: all of the share
	total     int64 // 0: Unbounded
	instances int
	shutUntil int64
	plan      plans.Plan                 // all but Until, Limits and Shut
	bound     func(w quota.Window) int64 // overrides shares
	long      quota.Limit                // a budget, if it has permits
	whole     bool                       // this instance alone may issue all of it
}

func newFixed(shares map[time.Duration]int64) *fixed {
	return &fixed{shares: shares, plan: plans.Plan{Known: true, Proof: plans.Proof{Until: clock.Forever, WallUntil: clock.Forever, Lead: clock.Forever}}}
}

// Plan implements Planner.
func (f *fixed) Plan(at clock.Instant) plans.Plan { return f.Foresee(at.Mono) }

// Foresee implements Planner.
func (f *fixed) Foresee(now int64) plans.Plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.plan
	p.Until, p.Over = clock.Forever, now+p.Offset
	ends := func(at int64) {
		if at > now {
			p.Until = min(p.Until, at)
		}
	}
	ends(f.shutUntil)
	p.Shut = now < f.shutUntil
	wall := now + p.Offset
	for _, length := range slices.Sorted(maps.Keys(f.shares)) {
		l := plans.Limit{Window: quota.WindowAt(length, wall), Permits: f.shares[length], Burst: f.shares[length], Limit: cmp.Or(f.total, shape.Unbounded), Later: cmp.Or(f.total, shape.Unbounded), Instances: f.instances}
		if f.bound != nil {
			l.Permits = f.bound(l.Window)
		}
		if f.burst > 0 {
			l.Burst = min(f.burst, l.Permits)
		}
		opens, shuts := l.Window.Start()+p.Guard, l.Window.End()-p.Guard
		p.Shut = p.Shut || wall < opens || wall >= shuts
		for _, edge := range []int64{opens, shuts, l.Window.End()} {
			ends(edge - p.Offset)
		}
		p.Limits, p.Running = append(p.Limits, l), append(p.Running, l.Window)
	}
	if p.Budgets = nil; f.long.Permits > 0 {
		b := protocol.BudgetAt(f.long, time.UTC, wall)
		b.Whole = f.whole
		p.Budgets = []protocol.Budget{b}
		ends(b.End - p.Offset)
	}
	return p
}

// gateOf returns a gate without an alarm.
func gateOf(p Planner, places int, decided func(*queue.Waiter, queue.Grant, queue.Verdict)) *Gate {
	g := NewGate(p, decided, nil)
	g.Bound(places)
	return g
}

// begun returns a gate with these shares, and what it tells.
func begun(shares map[time.Duration]int64) (*fixed, *Gate, *told) {
	f, told := newFixed(shares), &told{}
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	return f, g, told
}

// take issues n permits, all or none.
func take(g *Gate, at clock.Instant, n int64) (queue.Grant, bool) {
	grant, v := g.Enter(at, nil, n, 0, queue.Default)
	return grant, v == queue.Granted
}

// upTo issues as many permits as there are, at most n.
func upTo(g *Gate, at clock.Instant, n int64) int64 {
	_, _, got := g.TakeUpTo(at, n, queue.Default)
	return got
}

var serials atomic.Uint64

// refund gives back permits that were not given back before.
func refund(g *Gate, at clock.Instant, grant queue.Grant, n int64) bool {
	_, back := g.Correct(at, grant, serials.Add(1), n, 0)
	return back
}

func (f *fixed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func at(d time.Duration) clock.Instant { return clock.Instant{Mono: int64(d), Wall: int64(d)} }

// told records what waiters were told, in order.
type told struct{ log []string }

func (t *told) decided(w *queue.Waiter, g queue.Grant, v queue.Verdict) {
	if v == queue.Granted {
		t.log = append(t.log, fmt.Sprintf("%v@%v", w.Payload, time.Duration(g.Start)))
		return
	}
	t.log = append(t.log, fmt.Sprintf("%v!%d", w.Payload, v))
}

func (t *told) take() []string { l := t.log; t.log = nil; return l }

const second = time.Second
