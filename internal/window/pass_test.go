package window

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// The first in line has a claim on what is left: for 100 ms, or a tenth of a window that is shorter.
// Then others pass it, but not with what it can use before the windows end of which it lacks some.
func TestOthersPassAfterTheClaim(t *testing.T) {
	t.Parallel()
	for kind, line := range lines(100, map[time.Duration]int64{second: 10, 10 * second: 40}) {
		told := func(what string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, line.told()); diff != "" {
				t.Errorf("%s: %s: told (-want +got):\n%s", kind, what, diff)
			}
		}
		line.tick(0)
		line.upTo(ms, 6)
		if line.enter(10*ms, 8) != queue.Queued || line.enter(20*ms, 3) != queue.Queued {
			t.Fatalf("%s: a call for more than is left, or one behind it, does not wait", kind)
		}
		if n := line.upTo(109*ms, 1); n != 0 {
			t.Errorf("%s: %d pass within the claim", kind, n)
		}
		told("within the claim")
		line.tick(110 * ms)
		told("when the claim has ended", "3@0s")
		if line.enter(120*ms, 2) != queue.Queued || line.upTo(130*ms, 5) != 1 {
			t.Errorf("%s: a newcomer does not have what none of those that wait can use", kind)
		}
		line.tick(second)
		told("at the edge", "8@1s", "2@1s")
		for w := 1; w <= 2; w++ {
			line.tick(time.Duration(w) * second)
			line.upTo(time.Duration(w)*second+ms, 8)
		}
		line.tick(3 * second) // 10, 10 and 8 of 40 are used
		line.upTo(3*second+ms, 5)
		if line.enter(3*second+10*ms, 7) != queue.Queued { // of 5 in this second, and of 7 in the ten
			t.Fatalf("%s: it does not wait", kind)
		}
		line.tick(3*second + 110*ms)
		if n := line.upTo(3*second+120*ms, 5); n != 0 {
			t.Errorf("%s: %d permits of the ten seconds pass a call that can use them in the next one", kind, n)
		}
		line.tick(4 * second)
		told("at the next second", "7@4s")
	}
}

// While the claim of a large call runs, small calls have what they will want, also if another large call waits: of that it
// can use nothing.
func TestSmallCallsPassTwoLargeOnes(t *testing.T) {
	t.Parallel()
	for kind, line := range lines(100, map[time.Duration]int64{second: 10}) {
		line.tick(0)
		for now := 50 * ms; now < second; now += 100 * ms {
			line.upTo(now, 1)
		}
		line.tick(second)
		if line.enter(second+ms, 35) != queue.Queued || line.enter(second+2*ms, 12) != queue.Queued {
			t.Fatalf("%s: a large call does not wait", kind)
		}
		switch l := line.(type) {
		case *gateLine:
			l.gate.Borrow(at(second+20*ms), "host", protocol.Note{Windows: l.gate.mu.ledger.windows.Running, Permits: map[string]int64{"": 25}})
		case *keyLine:
			l.use.Borrow("host", l.use.windows.Running, 25, func(quota.Window) int64 { return 100 })
		}
		line.tick(second + 20*ms)
		if line.enter(second+30*ms, 20) != queue.Queued {
			t.Errorf("%s: a third large call does not wait", kind)
		}
		if n := line.upTo(second+40*ms, 35); n < 8 || n > 15 {
			t.Errorf("%s: small calls have %d of 35, want about the 10 that come in a window", kind, n)
		}
		if served := line.told(); len(served) > 0 {
			t.Errorf("%s: %v are served within the claim", kind, served)
		}
	}
}

// What is kept for critical calls is kept beside what small default ones get during the claim of a large call, and not of that.
func TestSmallCallsPassALargeOneBesideWhatIsKept(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 20})
	f.total, f.instances, f.plan.Critical = 200, 10, 50
	g, _ := lender(f)
	g.Changed(at(0))
	for now := 50 * ms; now < second; now += 200 * ms {
		upTo(g, at(now), 1)
	}
	g.Tick(at(second))
	if _, v := g.Enter(at(second+ms), new(queue.Waiter), 35, clock.Forever, queue.Default); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	n := int64(0)
	for range 3 {
		n += upTo(g, at(second+40*ms), 1)
	}
	if n != 3 {
		t.Errorf("small calls have %d of the 10 that are not kept, and want 5 in a window", n)
	}
}

// A critical large call leaves nothing to others while its claim runs, neither what is kept for critical calls.
func TestNobodyPassesACriticalLargeCallWithWhatIsKept(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 50})
	f.total, f.instances, f.plan.Critical = 100, 2, 20
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	if _, v := g.Enter(at(ms), &queue.Waiter{Payload: "large"}, 60, clock.Forever, queue.Critical); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	if _, _, n := g.TakeUpTo(at(2*ms), 10, queue.Critical); n != 0 {
		t.Errorf("%d permits pass it", n)
	}
	g.Borrow(at(20*ms), "host", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 15}})
	if diff := cmp.Diff([]string{"large@0s"}, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// Where a guard keeps permits back at the edges of a window, the claim runs from when they can be issued.
func TestTheClaimBeginsAfterTheGuard(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{500 * ms: 10})
	f.total, f.instances, f.plan.Guard = 100, 10, int64(50*ms)
	g, _ := lender(f)
	g.Changed(at(0))
	if _, v := g.Enter(at(10*ms), new(queue.Waiter), 35, clock.Forever, queue.Default); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	for _, step := range []struct {
		at   time.Duration
		want int64
	}{{51 * ms, 0}, {99 * ms, 0}, {500 * ms, 0}, {599 * ms, 0}, {600 * ms, 1}} {
		g.Tick(at(step.at))
		if n := upTo(g, at(step.at), 1); n != step.want {
			t.Errorf("at %v %d pass, want %d", step.at, n, step.want)
		}
	}
}

// With or without others, small calls pass a large one with what it cannot use in its window.
func TestSmallOnesPassWhereOneInstanceIsAlone(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 100})
	f.total, f.instances = 100, 1
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	upTo(g, at(1), 50)
	for i, n := range []int64{80, 20, 40} {
		if _, v := g.Enter(at(second), &queue.Waiter{Payload: n}, n, int64(12*second), queue.Default); v != []queue.Verdict{queue.Queued, queue.Granted, queue.Queued}[i] {
			t.Errorf("verdict %d for %d permits", v, n)
		}
	}
	if n := upTo(g, at(2*second), 100); n != 30 {
		t.Errorf("%d left beside the first in line, want 30", n)
	}
}

// A waiter that is not the first leaves while others wait: what was kept for it is free again, and so is its place among
// those that are passed.
func TestNothingIsKeptForWhoHasGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spans map[time.Duration]int64
		wants []int64 // of those that wait behind the first, and leave
		goes  func(g *Gate, w *queue.Waiter)
		want  int64 // permits for a newcomer then
	}{
		"permits of a longer window": {map[time.Duration]int64{second: 10, 10 * second: 40}, []int64{9, 9, 8}, func(g *Gate, w *queue.Waiter) { g.Cancel(at(120*ms), w) }, 4},
		"more than are passed":       {map[time.Duration]int64{second: 10}, slices.Repeat([]int64{9}, mostPassed), func(g *Gate, w *queue.Waiter) { g.Cancel(at(120*ms), w) }, 4},
		"displaced": {map[time.Duration]int64{second: 10, 10 * second: 40}, []int64{9, 9, 8}, func(g *Gate, _ *queue.Waiter) {
			if _, v := g.Enter(at(120*ms), new(queue.Waiter), 5, clock.Forever, queue.Default); v != queue.Queued {
				t.Errorf("a call of a higher class: verdict %d", v)
			}
		}, 3},
	} {
		f := newFixed(c.spans)
		f.total, f.instances = 100, 10
		g, _ := lender(f)
		g.Bound(1 + len(c.wants))
		g.Changed(at(0))
		upTo(g, at(ms), 6)
		var waiters []*queue.Waiter
		enter := func(n int64, class queue.Class) {
			w := new(queue.Waiter)
			waiters = append(waiters, w)
			if _, v := g.Enter(at(2*ms), w, n, clock.Forever, class); v != queue.Queued {
				t.Fatalf("%s: verdict %d", name, v)
			}
		}
		enter(8, queue.Critical)
		for _, n := range c.wants {
			enter(n, queue.Sheddable)
		}
		g.Changed(at(110 * ms)) // the claim has ended
		if n := upTo(g, at(111*ms), 1); n != 0 {
			t.Errorf("%s: a newcomer gets %d before", name, n)
		}
		c.goes(g, waiters[len(waiters)-1])
		if n := upTo(g, at(130*ms), 10); n != c.want {
			t.Errorf("%s: a newcomer gets %d, want %d", name, n, c.want)
		}
	}
}

// What is left of a limit that counts by parts of time can be had in a later part too. So nobody passes a waiter with
// permits of such a limit: neither one that lacks some of it, nor one that lacks others.
func TestNobodyPassesWithWhatAWaiterCanUseInALaterPart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		taken    int64 // of the hour
		n        int64 // for which a caller waits
		spent    int64 // of the second, before it comes
		newcomer int64
	}{
		"it lacks some of the hour":            {50, 60, 0, 0},
		"it lacks some of the second":          {70, 60, 50, 10},
		"it lacks some of the second and hour": {50, 60, 50, 0},
	} {
		f := newFixed(map[time.Duration]int64{second: 100})
		f.total, f.instances = 1000, 10
		f.long = quota.Limit{Permits: 5000, Window: time.Hour, Sliding: true}
		g, _ := lender(f)
		g.Changed(at(0))
		funds(g, 0, protocol.BudgetAt(f.long, time.UTC, 0), c.taken+c.spent, 0)
		if n := upTo(g, at(ms), c.spent); n != c.spent {
			t.Fatalf("%s: %d of %d", name, n, c.spent)
		}
		if _, v := g.Enter(at(2*ms), new(queue.Waiter), c.n, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("%s: verdict %d", name, v)
		}
		g.Changed(at(110 * ms)) // the claim has ended
		if n := upTo(g, at(111*ms), 100); n != c.newcomer {
			t.Errorf("%s: a newcomer gets %d, want %d", name, n, c.newcomer)
		}
	}
}
