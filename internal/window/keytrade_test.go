package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
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

// Windows run of a length that only other keys' overrides have. What is of this key goes by the shortest window in which
// it is limited. When it gets a limit of the other length, it goes by that, and goes back once that is taken away.
func TestAKeyGoesByTheShortestWindowThatLimitsIt(t *testing.T) {
	t.Parallel()
	var a Account
	limited := func(shortest int64) func(quota.Window) int64 {
		return func(w quota.Window) int64 {
			if w.Length == second {
				return shortest
			}
			return 50
		}
	}
	f, large := plans.Fleet{Total: 400, Instances: 8, Owners: 8}, Callers{Waiting: 90, Large: 90}
	for _, step := range []struct {
		at       time.Duration
		shortest int64 // the bound of the second that runs
		length   time.Duration
		before   int64 // permits that callers used in the window before
	}{
		{2 * second, shape.Unbounded, 10 * second, 0}, {11 * second, shape.Unbounded, 10 * second, 3},
		{12 * second, 5, second, 0}, {13 * second, 5, second, 3}, {14 * second, shape.Unbounded, 10 * second, 0},
		{21 * second, shape.Unbounded, 10 * second, 12},
	} {
		windows := lendingAt("me", step.at, second, 10*second)
		a.Adopt(windows, limited(step.shortest), nil)
		w := quota.WindowAt(step.length, int64(step.at))
		if a.Shortest() != w || a.before != step.before || a.trade != nil && a.trade.window != w {
			t.Errorf("at %v: it goes by %v, and %d were used before; want %v and %d; trade %+v", step.at, a.Shortest(), a.before, w, step.before, a.trade)
		}
		if ask, _ := a.Ask(f, large, int64(step.at)); ask == nil || !a.asked(windows.Running) || a.asked(windows.Running[:0]) {
			t.Errorf("at %v it asks for nothing", step.at)
		}
		a.Charge(3)
	}
	a.Owe(60)
	if ask, next := a.Ask(f, Callers{}, int64(22*second)); ask != nil || next < int64(29*second) {
		t.Errorf("for a debt it asks for %+v, and looks again at %v, not late in its window", ask, time.Duration(next))
	}
}

// The only owner of a key has nobody to ask: it asks for nothing, and looks again as one that has nothing to ask for. When
// it has lent some, those who have them may lend them back.
func TestTheOnlyOwnerOfAKeyAsksNobody(t *testing.T) {
	t.Parallel()
	var a Account
	f := plans.Fleet{Total: 10, Instances: 2, Owners: 1}
	now := 50 * ms
	for ; now < 4*second; now += 100 * ms {
		a.Adopt(lendingAt("me", now, second), bounds(10), nil)
		a.Charge(a.Left())
		a.Refused(1, queue.Default, false)
		ask, next := a.Ask(f, Callers{Waiting: 3}, int64(now))
		if a.asked(a.windows.Running) || ask != nil || next < int64(now+lookAgain) {
			t.Fatalf("at %v it asks for %+v, and looks again after %v", now, ask, time.Duration(next)-now)
		}
		a.Looked(int64(now), next)
		if at, sooner := a.LookSoon(int64(now + ms)); sooner || at < int64(now+lookAgain) { // for the next call that is refused
			t.Fatalf("at %v it looks again after %v, before it can ask", now, time.Duration(at)-now)
		}
	}
	a.Adopt(lendingAt("me", now, second), bounds(10), nil)
	a.lend("guest", 2)
	a.Charge(a.Left())
	now += 100 * ms
	if ask, _ := a.Ask(f, Callers{Waiting: 3}, int64(now)); ask == nil || len(ask.Debtors) != 1 {
		t.Errorf("it asks for %+v, want some of the guest", ask)
	}
}

// An instance that has its equal part of a key's window is not poor, whatever became of that: calls that have it or for
// which it is reserved, or a debt that it paid. So no other one gives its reserve for it.
func TestAKeyThatHasItsPartIsNotPoor(t *testing.T) {
	t.Parallel()
	for name, spend := range map[string]func(a *Account){
		"issued":   func(a *Account) { a.Charge(50) },
		"reserved": func(a *Account) { a.Reserve(50) },
		"paid": func(a *Account) {
			a.Owe(50)
			a.Pay()
		},
	} {
		var a Account
		a.Adopt(lendingAt("me", 100*ms, 10*second), bounds(50), nil)
		spend(&a)
		ask, _ := a.Ask(plans.Fleet{Total: 100, Instances: 2, Owners: 2}, Callers{Waiting: 20}, int64(100*ms))
		if ask == nil || ask.Permits < 20 || ask.Poor != 0 {
			t.Errorf("%s: it asks for %+v", name, ask)
		}
	}
}
