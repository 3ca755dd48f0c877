package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// The loans of the last window are shown by instance, and the time from the first call that
// lacked a permit to the window's first loan.
func TestWhatIsToldOfLoans(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 400
	g, _ := lender(f)
	g.Changed(at(0))
	borrow := func(now time.Duration, host string, permits int64) {
		g.Tick(at(now))
		g.Borrow(at(now), host, protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": permits}})
	}
	upTo(g, at(200*ms), 40)
	g.Enter(at(300*ms), nil, 1, 0, queue.Default)
	g.Want(at(305 * ms))
	borrow(310*ms, "h2", 7)
	borrow(315*ms, "h1", 5)
	borrow(320*ms, "h1", 9) // 4 more
	if u := g.Usage(at(400 * ms)); u.FirstLoans != 1 || u.FirstLoanTime != 10*ms || u.LastLoans != (Loans{}) {
		t.Errorf("%+v: want 10 ms to the first loan, and nothing of a window before", u.LendingCounts)
	}
	g.Enter(at(500*ms), &queue.Waiter{}, 50, clock.Forever, queue.Default) // more than is left: it waits over the edge
	g.Tick(at(second))
	if u := g.Usage(at(second)); u.LastLoans != (Loans{Borrowed: 16, Hosts: 2}) {
		t.Errorf("%+v: want 16 permits of 2 hosts", u.LastLoans)
	}
	borrow(second+30*ms, "h1", 20)
	g.asked(at(second+700*ms), "a", need(2, true))
	g.asked(at(second+710*ms), "a", need(3, true))
	g.asked(at(second+720*ms), "b", need(1, true))
	if u := g.Usage(at(2 * second)); u.FirstLoans != 2 || u.FirstLoanTime != 40*ms || u.LastLoans != (Loans{14, 1, 0, 0}) {
		t.Errorf("%+v: want 30 ms more for one that waited from the window's start, and that 6 of 20 permits were lent on", u.LendingCounts)
	}
	if u := g.Usage(at(3 * second)); u.LastLoans != (Loans{}) {
		t.Errorf("%+v of a window without loans", u.LastLoans)
	}
	g.Enter(at(3*second+100*ms), &queue.Waiter{}, 41, clock.Forever, queue.Default)
	borrow(3*second+105*ms, "h1", 20)
	if u := g.Usage(at(5 * second)); u.FirstLoans != 3 || u.FirstLoanTime != 45*ms || u.LastLoans != (Loans{}) {
		t.Errorf("%+v: want 5 ms more, and nothing of a window that has passed unseen", u.LendingCounts)
	}
	g.Tick(at(6 * second))
	borrow(6*second+100*ms, "h1", 5) // before any call lacks a permit
	upTo(g, at(6*second+200*ms), 45)
	g.Enter(at(6*second+300*ms), nil, 1, 0, queue.Default)
	borrow(6*second+400*ms, "h1", 9)
	if u := g.Usage(at(6*second + 500*ms)); u.FirstLoans != 3 || u.FirstLoanTime != 45*ms {
		t.Errorf("%+v: a later loan counts as the first", u.LendingCounts)
	}
	g.Tick(at(7 * second))
	upTo(g, at(7*second+200*ms), 40)
	g.Want(at(7*second + 300*ms))
	borrow(7*second+303*ms, "h1", 5)
	if u := g.Usage(at(7*second + 500*ms)); u.FirstLoans != 4 || u.FirstLoanTime != 48*ms {
		t.Errorf("%+v: want 3 ms more for a call that took what there was", u.LendingCounts)
	}
}

// What was not lent is lent when reserves are released, without another ask.
func TestOpenAsks(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.total = 2000
	g, lent := lender(f)
	armed := clock.Forever
	g.Arm = func(at int64) { armed = min(armed, at) }
	g.Changed(at(0))
	g.asked(at(300*ms), "a", need(500, false))
	first := lent()
	if len(first) != 1 || first[0].loan.Permits[""] >= 100 {
		t.Fatalf("lent %+v of 100, want all but a reserve", first)
	}
	if armed != int64(860*ms) {
		t.Fatalf("looks at %v, want 140 ms before the window ends", time.Duration(armed))
	}
	g.Look(at(860 * ms))
	if l := lent(); len(l) != 1 || l[0].loan.Permits[""] != 100 {
		t.Errorf("lent %+v in all, want 100", l)
	}
	g.Tick(at(second))
	g.Look(at(second + 860*ms))
	if l := lent(); len(l) > 0 {
		t.Errorf("lent %+v in the window after", l)
	}
}

// A fleet that starts has no shares yet: that nobody lent then says nothing of the first windows
// with shares.
func TestAGuestThatGetsAShareAsksAgain(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 0})
	f.total, f.instances = 100, 5
	g, _ := lender(f)
	refused := int64(0)
	g.Refused = func() int64 { return refused }
	g.Changed(at(0))
	// play has callers that come each millisecond, and returns how often others are asked.
	play := func(from time.Duration) (asks int) {
		for now := from; now < from+500*ms; now += ms {
			if upTo(g, at(now), 1) == 0 {
				refused++
			}
			if ask, _ := g.Look(at(now)); ask != nil {
				asks++
			}
		}
		return asks
	}
	for w := range time.Duration(6) {
		play(w * second)
	}
	if u := g.Usage(at(6 * second)); u.Fruitless < 5 {
		t.Fatalf("%d windows in vain", u.Fruitless)
	}
	f.shares[second] = 20
	g.Changed(at(6*second + 900*ms))
	if play(7*second) == 0 {
		t.Error("it asks nobody in its first window with a share")
	}
}

// An instance that has lent all and has had no calls for a while asks nobody, also when it looks
// at the open asks.
func TestAHostWithoutCallsAsksNobody(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 20})
	f.total, f.instances = 100, 5
	g, lent := lender(f)
	g.Changed(at(0))
	g.Look(at(1))
	upTo(g, at(ms), 5)
	g.Look(at(2 * ms))
	g.Tick(at(second))
	g.Tick(at(2 * second))
	g.Tick(at(3 * second))
	g.asked(at(3*second+400*ms), "a", need(80, false))
	ask, _ := g.Look(at(3*second + 860*ms))
	if l := lent(); len(l) == 0 || l[len(l)-1].loan.Permits[""] != 20 || ask != nil {
		t.Errorf("lent %+v of 20, and asks for %+v", l, ask)
	}
}

// What an ask did not get at once is lent when reserves are released, if its guest is there.
func TestAnAskEndsWhenItsGuestLeaves(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		f := newFixed(map[time.Duration]int64{second: 30})
		g, lent := lender(f)
		left := false
		g.LendsTo = func(string, int64) (int64, bool) { return 0, !left }
		g.Changed(at(0))
		g.asked(at(100*ms), "a", need(30, false))
		lent()
		left = leaves
		for now := 101 * ms; now < 999*ms; now += ms {
			g.Look(at(now))
		}
		if all := lent(); (len(all) > 0) == leaves {
			t.Errorf("lent %+v; the guest has left: %v", all, leaves)
		}
	}
}
