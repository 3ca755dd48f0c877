package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// An instance that has asked in vain for long rests, but not when others begin to have shares:
// they may use less of theirs.
func TestAGuestThatRestsAsksWhenOthersHaveShares(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 20})
	f.total, f.instances = 100, 5
	g, _ := lender(f)
	refused := int64(0)
	g.Refused = func() int64 { return refused }
	g.Changed(at(0))
	for w := range time.Duration(7) {
		if w == 6 {
			f.instances = 6
			g.Changed(at(6*second - ms))
		}
		asks := 0
		for now := w * second; now < w*second+500*ms; now += ms {
			if upTo(g, at(now), 1) == 0 {
				refused++
			}
			if ask, _ := g.Look(at(now)); ask != nil {
				asks++
			}
		}
		if rests := w == 3 || w == 5; rests != (asks == 0) {
			t.Errorf("%d asks in window %d", asks, w)
		}
	}
}

// The only instance that has a share asks those to which it has lent: they may have more than
// they use.
func TestTheOnlyOwnerAsksItsGuests(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.total, f.instances = 100, 1
	g, _ := lender(f)
	g.LendsTo = func(string, int64) (int64, bool) { return int64(9 * second), true }
	f.plan.Lending.Instances = 2
	g.Changed(at(0))
	upTo(g, at(1), 100)
	g.Enter(at(2), &queue.Waiter{}, 1, clock.Forever, queue.Default)
	g.Changed(at(second))
	for lent, asks := range []bool{false, true} {
		if ask, _ := g.Look(at(second + 10*ms)); (ask != nil) != asks {
			t.Errorf("%d times it has lent, and asks for %+v", lent, ask)
		}
		g.asked(at(second+11*ms), "joiner", need(30, true))
		upTo(g, at(second+12*ms), 100)
		g.Enter(at(second+13*ms), &queue.Waiter{}, 1, clock.Forever, queue.Default)
	}
}
