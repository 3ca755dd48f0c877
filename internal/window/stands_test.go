package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// A large call that was the first when a window was entered asks each host for an equal part of the next window, and
// again after as many windows as it wants shares. A host lends it there, before its own callers have it, once.
func TestALargeCallThatStands(t *testing.T) {
	t.Parallel()
	all := lines(100, map[time.Duration]int64{second: 10})
	all["key of nine others"] = &keyLine{shares: map[time.Duration]int64{second: 0}, total: 100, owners: 9}
	for kind, guest := range all {
		standing := func(from, to time.Duration) (all []int64) {
			for now := from; now < to; now += 5 * ms {
				if ask := guest.ask(now); ask != nil && ask.Edge > 0 {
					all = append(all, int64(now/second), ask.Edge, int64(ask.Hosts))
				}
			}
			return all
		}
		guest.tick(20 * second)
		guest.enter(20*second+500*ms, 35)
		if diff := cmp.Diff([]int64{21, 35, 9, 25, 35, 9}, standing(20*second+500*ms, 29*second)); diff != "" {
			t.Errorf("%s: asks in which windows, for how many, of how many (-want +got):\n%s", kind, diff)
		}
	}

	h := newFixed(map[time.Duration]int64{second: 10})
	h.total, h.instances = 100, 10
	host, lent := lender(h)
	refused := int64(0)
	host.Refused = func() int64 { return refused }
	host.Changed(at(0))
	for now := time.Duration(0); now < second; now += 10 * ms { // its own callers want ten times its share
		refused += 1 - upTo(host, at(now), 1)
	}
	n := need(4, false)
	n.Edge = n.Permits
	host.asked(at(second-5*ms), "guest", n)
	host.asked(at(second-4*ms), "guest", need(7, false)) // another ask does not replace it
	lent()
	own := &queue.Waiter{}
	host.Enter(at(second-3*ms), own, 10, clock.Forever, queue.Default)
	host.Tick(at(second))
	if l := lent(); len(l) != 1 || l[0].loan.Permits[""] != 4 {
		t.Errorf("lent %+v at the edge, want 4", l)
	}
	host.Cancel(at(second+ms), own)
	host.Enter(at(second+2*ms), &queue.Waiter{}, 10, clock.Forever, queue.Default)
	host.Tick(at(2 * second))
	if l := lent(); len(l) != 0 {
		t.Errorf("lent %+v at the edge after", l)
	}
}

// TestALargeCallBehindAHigherClass: a large call stands, and small calls leave it a part, also where callers of a higher class
// wait before it whenever a window begins. Once it has gone nothing of that is left.
func TestALargeCallBehindAHigherClass(t *testing.T) {
	t.Parallel()
	for kind, l := range lines(100, map[time.Duration]int64{second: 10}) {
		l.tick(20 * second)
		l.upTo(20*second, 10)
		l.enter(20*second+500*ms, 35)
		var stands []int64
		credit := map[int64]bool{}
		for now := 20*second + 505*ms; now < 26*second; now += 5 * ms {
			if now%second == second-10*ms {
				if v := l.enterAs(now, 10, queue.Critical); v != queue.Queued {
					t.Fatalf("%s: a critical call for 10 of a share of which some is spent: verdict %d", kind, v)
				}
			}
			if now%second == 0 {
				l.tick(now)
				l.upTo(now, 10)
			}
			if ask := l.ask(now); ask != nil && ask.Edge > 0 {
				stands = append(stands, int64(now/second))
			}
			credit[int64(now/second)] = trade(l).claim.left > 0
		}
		if diff := cmp.Diff([]int64{21, 25}, stands); diff != "" {
			t.Errorf("%s: in which windows it asks for the next (-want +got):\n%s", kind, diff)
		}
		if credit[20] || !credit[24] {
			t.Errorf("%s: small calls have left it some: %v", kind, credit)
		}
	}
}

// What others leave to a large call that stands is kept for it until all of it can have come, in short windows too: no
// small call that waits has it first. Loans take as long there as in longer windows.
func TestWhatIsLeftInAShortWindowComesTogether(t *testing.T) {
	t.Parallel()
	const length, begins = 250 * ms, 20 * second
	for kind, l := range lines(100, map[time.Duration]int64{length: 10}) {
		borrow := func(now time.Duration, n int64) {
			switch l := l.(type) {
			case *gateLine:
				l.gate.Borrow(at(now), "host", protocol.Note{Windows: l.gate.mu.ledger.windows.Running, Permits: map[string]int64{"": n}})
			case *keyLine:
				l.use.Borrow("host", l.use.windows.Running, n, func(quota.Window) int64 { return l.total })
				l.tick(now)
			}
		}
		l.tick(begins)
		l.upTo(begins, 10)
		l.enter(begins+ms, 35)
		stands := begins
		for now := begins + length; stands == begins && now < begins+2*length; now += 5 * ms {
			if ask := l.ask(now); ask != nil && ask.Edge > 0 {
				stands = begins + 2*length
			}
		}
		for range 6 {
			l.enter(stands-ms, 10)
		}
		l.told()
		l.tick(stands)
		got := l.told()
		borrow(stands+22*ms, 18)
		l.tick(stands + 25*ms)
		borrow(stands+45*ms, 36) // a host tells the sum
		want := []string{fmt.Sprintf("35@%v", stands), fmt.Sprintf("10@%v", stands)}
		if diff := cmp.Diff(want, append(got, l.told()...)); diff != "" {
			t.Errorf("%s: who is served (-want +got):\n%s", kind, diff)
		}
	}
}

// A large call that could stand only from late in a window on waits for the next window: hosts drop an ask that comes after
// the window's end, or in the guard before it, and it would count all the same.
func TestALargeCallDoesNotStandLate(t *testing.T) {
	t.Parallel()
	for _, guard := range []time.Duration{0, 50 * ms} {
		for kind, l := range lines(100, map[time.Duration]int64{second: 10}) {
			switch l := l.(type) {
			case *gateLine:
				f := l.gate.planner.(*fixed)
				f.set(func() { f.plan.Guard = int64(guard) })
			case *keyLine:
				l.guard = guard
			}
			l.tick(20*second + 400*ms)
			l.enter(20*second+500*ms, 35)
			l.tick(21*second + guard)
			if ask := l.ask(22*second - guard - 20*ms); ask != nil && ask.Edge > 0 {
				t.Errorf("%s, guard %v: it stands 20 ms before hosts listen no more", kind, guard)
			}
			l.tick(22*second + guard)
			if ask := l.ask(22*second + guard + 5*ms); ask == nil || ask.Edge != 35 {
				t.Errorf("%s, guard %v: it asks for %+v in the next window", kind, guard, ask)
			}
		}
	}
}

// TestALargeCallStandsOnceInAWindow: a call that is large by a longer limit alone does not ask for another window while the
// one in which it stands runs, since what it was left there may come yet.
func TestALargeCallStandsOnceInAWindow(t *testing.T) {
	t.Parallel()
	for kind, l := range lines(100, map[time.Duration]int64{second: 50, 10 * second: 20}) {
		l.tick(20 * second)
		l.upTo(20*second, 20)
		l.enter(20*second+500*ms, 35)
		l.tick(21 * second)
		if ask := l.ask(21*second + 5*ms); ask == nil || ask.Edge != 35 {
			t.Fatalf("%s: it asks for %+v, want a part of the next window", kind, ask)
		}
		l.tick(22 * second)
		if ask := l.ask(22*second + 5*ms); ask != nil && ask.Edge > 0 {
			t.Errorf("%s: it asks for %+v while it stands", kind, ask)
		}
	}
}

// A large call that has gone does not stand.
func TestALargeCallThatHasGone(t *testing.T) {
	t.Parallel()
	l := lines(100, map[time.Duration]int64{second: 10})["key"].(*keyLine)
	l.enter(0, 35)
	l.queue.Remove(l.queue.Head())
	l.use.LineLeft(&l.queue, int64(ms))
	for now := 5 * ms; now < 10*second; now += 5 * ms {
		if ask := l.ask(now); ask != nil && ask.Edge > 0 {
			t.Fatalf("at %v it asks for %+v", now, ask)
		}
	}
}

// Of a key, too, a host lends at the edge what a large call that stands wants, also if none of its own callers wait there:
// they come before an ask does. Until then the host does not forget the key.
func TestALargeCallThatStandsForAKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		edge, waiting, large, lent int64
	}{{4, 30, 0, 4}, {4, 0, 0, 4}, {4, 30, 30, 4}, {0, 0, 0, 0}} {
		a, _, s := traded(10)
		f := plans.Fleet{Total: 40, Instances: 4, Owners: 4}
		a.Charge(10)
		n := need(4, false)
		n.Edge = 1000 * c.edge
		if told, _ := a.Lend("guest", n, f, Callers{Waiting: 30}, 0, 0, int64(990*ms)); told > 0 {
			t.Fatalf("%d are lent of none", told)
		}
		next := lendingAt("me", second, second) // its own permits of the window before count no more
		if forgotten := a.Forget(next); forgotten != (c.edge == 0) {
			t.Errorf("%+v: forgotten before the edge: %v", c, forgotten)
		}
		a.Adopt(next, bounds(10), nil)
		lent := int64(0)
		a.LendAtEdge(f, Callers{Waiting: c.waiting, Large: c.large}, s.hash, int64(second), func(string) bool { return true }, func(_ string, told int64) { lent += told })
		if lent != c.lent {
			t.Errorf("%+v: %d are lent", c, lent)
		}
		if !a.Forget(lendingAt("me", 2*second, second)) {
			t.Errorf("%+v: not forgotten after the window", c)
		}
	}
}

// What others have left to a large call that stands is not lent before it can have come together: they lack it, and ask,
// for large calls of their own too, unless those come first in the window's order. Later it is lent to small calls, as is
// what is wanted by a large call that does not stand.
func TestWhatIsLeftToALargeCallIsNotLent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stands    bool
		guard, at time.Duration
		large     bool // the guest asks for a large call
		first     bool // the guest is, in the window's order
		lent      int64
	}{
		{true, 0, 5 * ms, false, false, 3},
		{true, 0, 99 * ms, false, false, 3},
		{true, 0, 100 * ms, false, false, 20},
		{false, 0, 5 * ms, false, false, 8},
		{true, 50 * ms, 149 * ms, false, false, 3},
		{true, 50 * ms, 150 * ms, false, false, 20},
		{true, 0, 5 * ms, true, false, 3},
		{true, 0, 99 * ms, true, false, 3},
		{true, 0, 100 * ms, true, false, 8},
		{false, 0, 5 * ms, true, false, 8},
		{true, 0, 5 * ms, true, true, 20},
	} {
		a, trade, _ := traded(20)
		a.windows.Guard = int64(c.guard)
		w, q := &queue.Waiter{}, &queue.Queue{}
		q.Push(w, 25, clock.Forever, queue.Default, true)
		a.Borrow("host", a.windows.Running, 8, func(quota.Window) int64 { return 80 })
		f := plans.Fleet{Total: 80, Instances: 4, Owners: 4}
		line := a.Line(q, f, 0)
		line.Entered(w)
		if trade.claim.stood, trade.claim.servedIn = -1, -1; c.stands {
			trade.claim.stood = 0
		}
		need := protocol.Need{Permits: 20000, Poor: 20000, Large: c.large}
		if told, _ := a.Lend(guestOf(a.windows.Running[0], c.first), need, f, CallersOf(q), 0, 0, int64(c.at)); told != c.lent {
			t.Errorf("%+v: %d are lent", c, told)
		}
	}
}
