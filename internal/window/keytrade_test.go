package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// A policy takes the shortest limit of a key away, and the next longer one is in the middle of its window. The trade goes
// by that window at once, and takes no call for a new one: few have come, so others are asked for nothing.
func TestTheShortestLimitOfAKeyIsTakenAway(t *testing.T) {
	t.Parallel()
	var a Account
	f := plans.Fleet{Total: 400, Instances: 10, Owners: 10}
	now := time.Duration(0)
	for ; now < 5500*ms; now += 250 * ms { // 22 calls
		a.Adopt(lendingAt("me", now, second, 10*second), bounds(50), nil)
		a.Ask(f, Callers{}, int64(now))
		a.Charge(1)
		a.Called(1, queue.Default, false)
	}
	a.Ask(f, Callers{}, int64(now))
	a.Adopt(lendingAt("me", now, 10*second), bounds(50), nil)
	if a.trade.window != a.windows.Running[0] || a.AtEdge() {
		t.Errorf("it goes by %+v, at an edge: %v", a.trade.window, a.AtEdge())
	}
	for end := now + second; now < end; now += 250 * ms {
		if ask, _ := a.Ask(f, Callers{}, int64(now)); ask != nil {
			t.Errorf("at %v it asks for %+v", now, ask.Ask)
		}
		a.Charge(1)
	}
}
