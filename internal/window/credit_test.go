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
		next := lendingAt("me", second, second)
		if a.Adopt(next, bounds(30), nil); c.issued {
			a.Confirm(w, 25)
			a.Refund(5, a.Epoch(), true)
		} else {
			a.Unreserve(w, 25)
		}
		if n := trade.claim.issued; n != 0 {
			t.Errorf("%+v: %d are issued that were reserved in the window", c, n)
		}
		if left := trade.claim.left; left != c.left {
			t.Errorf("%+v: small calls have left %d", c, left)
		}
	}
}

// Two large calls have permits reserved when a window begins: A in the window before the last, B, which stood, in the last
// one. What small calls have left to large ones comes back if B is not served after all, whatever becomes of A.
func TestTwoLargeCallsAreReservedAtAnEdge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		early   string // "B": B's permits are issued before the edge
		a, b    bool   // A's are issued, and B's, after it
		credits int64
	}{{"", true, true, 0}, {"", false, true, 0}, {"", true, false, 30}, {"", false, false, 30}, {"B", false, true, 0}, {"B", true, true, 0}} {
		_, trade, _ := traded(20)
		a, b, running := &queue.Waiter{}, &queue.Waiter{}, quota.Window{Length: second, Index: 6}
		trade.claim = claim{
			pending:  []pendingCall{{of: a, servedIn: 4}, {of: b, servedIn: 5}},
			servedIn: 2, stood: 5, left: 30, waits: true,
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
