package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// A large call of a key counts as served once its permits are issued. If they are not, as when its caller gives up in
// the provider's queue, small calls owe large ones what they did before, and the next one that stands still does.
func TestALargeCallOfAKeyIsServedOnceItsPermitsAreIssued(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end    func(a *Account, w *queue.Waiter)
		served bool
	}{
		"issued":     {func(a *Account, w *queue.Waiter) { a.Confirm(w, 25) }, true},
		"given back": {func(a *Account, w *queue.Waiter) { a.Unreserve(w, 25) }, false},
		"not there any more": {func(a *Account, w *queue.Waiter) {
			a.Charge(1)
			a.Confirm(w, 25)
		}, false},
		"another call that wants as many does not wait, and gives them back": {func(a *Account, w *queue.Waiter) {
			a.Reserve(25)
			a.Unreserve(nil, 25)
			a.Confirm(w, 25)
		}, true},
		"another call that wants as many is issued them": {func(a *Account, w *queue.Waiter) {
			a.Reserve(25)
			a.Confirm(nil, 25)
			a.Unreserve(w, 25)
		}, false},
	} {
		for _, stands := range []bool{true, false} {
			a, trade, _ := traded(20)
			q := &queue.Queue{}
			q.Push(&queue.Waiter{}, 25, clock.Forever, queue.Default, true)
			q.Push(&queue.Waiter{}, 30, clock.Forever, queue.Default, true)
			a.Borrow("host", a.windows.Running, 5, func(quota.Window) int64 { return 80 })
			trade.claim.servedIn, trade.claim.stood, trade.claim.left = -9, -9, 7
			if stands {
				trade.claim.stood = 0
			}
			trade.claim.small = &lending.Flow{}
			for at := range 20 { // small calls come, one each millisecond
				trade.claim.small.Look(float64(at), float64(at))
			}
			line := a.Line(q, plans.Fleet{Total: 80, Instances: 4, Owners: 4}, int64(20*ms))
			line.Begin()
			was := trade.claim
			a.Reserve(25)
			w := q.Head()
			line.Served(w, 25, true)
			q.Remove(w)
			a.LineLeft(q, int64(20*ms))
			if now := &trade.claim; now.lastServed() != 0 || now.issued != 25 || stands != (now.left == was.left) {
				t.Errorf("%s, stands %v: while they are reserved: %+v", name, stands, *now)
			}
			c.end(a, w)
			now := &trade.claim
			if served := now.lastServed() == 0; served != c.served || (now.issued == 25) != c.served || !c.served && now.left != was.left {
				t.Errorf("%s, stands %v: %+v, before %+v", name, stands, *now, was)
			}
			if next := now.standsIn(a.windows.Running[0]); next != (stands && !c.served) {
				t.Errorf("%s, stands %v: the next one stands: %v", name, stands, next)
			}
		}
	}
}

// A window begins while permits are reserved for a large call, and its share is less. Then they keep none of that window from
// other callers. Once the call has the provider's permits it is served if enough of the key's are there, and until then the
// account is not forgotten.
func TestAReservationThatANewWindowCannotHold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(a *Account, w *queue.Waiter) bool
		left int64
		ok   bool
	}{
		"its caller gives up": {func(a *Account, w *queue.Waiter) bool { a.Unreserve(w, 25); return false }, 20, false},
		"too few are there":   {func(a *Account, w *queue.Waiter) bool { return a.Confirm(w, 25) }, 20, false},
		"others have lent some": {func(a *Account, w *queue.Waiter) bool {
			a.Borrow("host", a.windows.Running, 6, func(quota.Window) int64 { return 80 })
			return a.Confirm(w, 25)
		}, 1, true},
	} {
		a, _, _ := traded(20)
		q := &queue.Queue{}
		q.Push(&queue.Waiter{}, 25, clock.Forever, queue.Default, true)
		a.Borrow("host", a.windows.Running, 5, func(quota.Window) int64 { return 80 })
		line := a.Line(q, plans.Fleet{Total: 80, Instances: 4, Owners: 4}, 0)
		line.Begin()
		a.Reserve(25)
		w := q.Head()
		line.Served(w, 25, true)
		q.Remove(w)
		a.LineLeft(q, 0)
		if left := a.Left(); left != 0 {
			t.Fatalf("%s: %d are left beside 25 that are reserved of 25", name, left)
		}
		next := lendingAt("me", second, second)
		a.Adopt(next, bounds(20), nil)
		if left := a.Left(); left != 20 || a.Forget(next) {
			t.Errorf("%s: in the next window %d of 20 are left, or the account is forgotten", name, left)
		}
		if ok := c.end(a, w); ok != c.ok || a.Left() != c.left || a.Reserves() {
			t.Errorf("%s: issued %v, then %d are left, reserved %v; want %v and %d", name, ok, a.Left(), a.Reserves(), c.ok, c.left)
		}
	}
}

// A window begins while permits are reserved for a large call. If it is not served then, large calls have again what small
// ones had left to them.
func TestALargeCallThatIsNotServedAfterAnEdge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stands, another, issued bool
		left                    int64
	}{{false, false, false, 7}, {true, false, false, 7}, {true, true, false, 7}, {false, false, true, 0}, {true, true, true, 0}} {
		a, trade, _ := traded(20)
		q, w := &queue.Queue{}, &queue.Waiter{}
		q.Push(w, 25, clock.Forever, queue.Default, true)
		if c.another {
			q.Push(&queue.Waiter{}, 30, clock.Forever, queue.Default, true)
		}
		a.Borrow("host", a.windows.Running, 5, func(quota.Window) int64 { return 80 })
		if trade.claim.servedIn, trade.claim.stood, trade.claim.left = -9, -9, 7; c.stands {
			trade.claim.stood = 0
		}
		line := a.Line(q, plans.Fleet{Total: 80, Instances: 4, Owners: 4}, int64(20*ms))
		line.Begin()
		a.Reserve(25)
		line.Served(w, 25, true)
		q.Remove(w)
		a.LineLeft(q, int64(20*ms))
		next, has := lendingAt("me", second, second), int64(0)
		if a.Adopt(next, bounds(30), nil); c.issued {
			a.Confirm(w, 25)
			a.Refund(5, a.Epoch(), true)
			has = 20
		} else {
			a.Unreserve(w, 25)
		}
		if n := trade.claim.issued; n != has {
			t.Errorf("%+v: it has %d of the window, want %d", c, n, has)
		}
		if left := trade.claim.left; left != c.left {
			t.Errorf("%+v: small calls have left %d", c, left)
		}
	}
}

// Two large calls have permits reserved when a window begins: A in the window before the last, B, which stood, in the last
// one; another large call waits, or none. What small calls have left to large ones comes back if B is not served after all,
// whatever becomes of A; and if B was served while none waits, if A is not.
func TestTwoLargeCallsAreReservedAtAnEdge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		early   string // "B": B's permits are issued before the edge
		waits   bool   // another large call waits
		a, b    bool   // A's are issued, and B's, after it
		credits int64
	}{
		{"", true, true, true, 0},
		{"", true, false, true, 0},
		{"", true, true, false, 30},
		{"", true, false, false, 30},
		{"B", true, false, true, 0},
		{"B", true, true, true, 0},
		{"", false, true, false, 30},
		{"B", false, true, true, 0},
		{"B", false, false, true, 30},
	} {
		_, trade, _ := traded(20)
		a, b, running := &queue.Waiter{}, &queue.Waiter{}, quota.Window{Length: second, Index: 6}
		trade.claim = claim{
			pending:  []pendingCall{{waiter: a, servedIn: 4}, {waiter: b, servedIn: 5}},
			servedIn: 2, stood: 5, left: 30, waits: c.waits,
		}
		if c.early == "B" {
			trade.claim.ended(b, 40, true, quota.Window{Length: second, Index: 5})
		}
		trade.claim.leave(quota.Window{Length: second, Index: 5}, 1000)
		trade.claim.ended(a, 40, c.a, running)
		if trade.claim.ended(b, 40, c.b, running); trade.claim.left != c.credits {
			t.Errorf("%+v: small calls have left %d", c, trade.claim.left)
		}
	}
}

// What large calls have of the window that runs counts each of them for itself: one whose permits were reserved in the window
// before has them from when they are issued, and gives back its own, not another one's. Whether one was served in the
// window does not go by that: one that gave back all was served.
func TestWhatLargeCallsHaveOfAWindow(t *testing.T) {
	t.Parallel()
	const none = -1
	for _, c := range []struct {
		what           string
		aGivesBack     int64 // of 35, that were reserved in the window before; none: it is not issued
		bGivesBack     int64 // of 40, reserved in this window; none: it is not issued
		issued         int64
		anotherOneIsTo bool // stand in this window
	}{
		{"both have theirs", 0, 0, 75, false},
		{"A gives back some", 25, 0, 50, false},
		{"A gives back all, B has its", 35, 0, 40, false},
		{"A gives back some, B is not served", 25, none, 10, true},
		{"A gives back all, B is not served", 35, none, 0, true},
		{"neither is served", none, none, 0, true},
		{"A is not served, B gives back all", none, 40, 0, false},
	} {
		a, trade, _ := traded(200)
		q, first, second := &queue.Queue{}, &queue.Waiter{}, &queue.Waiter{}
		f := plans.Fleet{Total: 800, Instances: 4, Owners: 4}
		serve := func(w *queue.Waiter, n int64, now time.Duration) {
			q.Push(w, n, clock.Forever, queue.Default, true)
			line := a.Line(q, f, int64(now))
			line.Begin()
			a.Reserve(n)
			line.Served(w, n, true)
			q.Remove(w)
			a.LineLeft(q, int64(now))
		}
		settle := func(w *queue.Waiter, n, back int64) {
			if back == none {
				a.Unreserve(w, n)
				return
			}
			if !a.Confirm(w, n) {
				t.Fatalf("%s: %d are not there", c.what, n)
			}
			if a.Called(n, queue.Default, true); !a.Refund(back, a.Epoch(), true) {
				t.Fatalf("%s: %d do not come back", c.what, back)
			}
		}
		wall := time.Second
		a.Adopt(lendingAt("me", wall, wall), bounds(200), nil)
		serve(first, 35, wall+20*ms)
		a.Adopt(lendingAt("me", 2*wall, wall), bounds(200), nil)
		trade.claim.stood = 2
		serve(second, 40, 2*wall+20*ms)
		settle(first, 35, c.aGivesBack)
		settle(second, 40, c.bGivesBack)
		if n := trade.claim.issued; n != c.issued {
			t.Errorf("%s: large calls have %d of the window, want %d", c.what, n, c.issued)
		}
		q.Push(&queue.Waiter{}, 300, clock.Forever, queue.Default, true)
		line := a.Line(q, f, int64(2*wall+30*ms))
		if line.Begin(); trade.claim.standsIn(a.Shortest()) != c.anotherOneIsTo {
			t.Errorf("%s: another one stands: %v", c.what, !c.anotherOneIsTo)
		}
	}
}

// What small calls have left to large ones is forgotten at the edge of a window at which no large call waits any more.
func TestWhatWasLeftToALargeCallThatHasGone(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{true, false} {
		for kind, line := range lines(100, map[time.Duration]int64{second: 10}) {
			line.tick(0)
			if line.enter(ms, 35) != queue.Queued {
				t.Fatalf("%s: it does not wait", kind)
			}
			for now := 100 * ms; now < 3*second; now += 100 * ms { // small calls come
				line.tick(now)
				line.upTo(now, 1)
			}
			if left := trade(line).claim.left; left == 0 {
				t.Fatalf("%s: small calls leave nothing", kind)
			}
			if another {
				line.enter(3*second-2*ms, 36)
			}
			switch l := line.(type) {
			case *gateLine:
				l.gate.Cancel(at(3*second-ms), l.gate.mu.queue.Head())
			case *keyLine:
				l.queue.Remove(l.queue.Head())
				l.use.LineLeft(&l.queue, int64(3*second-ms))
			}
			line.tick(3 * second)
			if left := trade(line).claim.left; (left > 0) != another {
				t.Errorf("%s: another one waits %v: %d are left to it", kind, another, left)
			}
		}
	}
}
