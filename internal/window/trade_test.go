package window

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// inVain has an instance that has spent its share ask for more in windows as long as length, from a wall time
// on, until it pauses since nothing comes. It returns when it does.
func inVain(t *testing.T, a *Account, length, from time.Duration) time.Duration {
	t.Helper()
	for wall, paused := from, 0; wall < from+40*length; wall += length {
		if askIn(a, length, wall) != nil {
			paused = 0
		} else if paused++; paused == 3 { // the longest pause, of four windows, has begun
			return wall
		}
	}
	t.Fatal("it asks again and again")
	return 0
}

// askIn has an instance spend its share of a window, and returns what it asks for then.
func askIn(a *Account, length, wall time.Duration) *Asking {
	a.Adopt(lendingAt("me", wall, length), bounds(50), nil)
	a.Charge(50)
	a.Refused(20, queue.Default, false)
	ask, _ := a.Ask(plans.Fleet{Total: 100, Instances: 2, Owners: 2}, Callers{}, int64(wall+50*ms))
	return ask
}

// A guest that pauses asks at once if the windows are of another length: of those it knows nothing.
func TestAPauseEndsWithItsWindows(t *testing.T) {
	t.Parallel()
	var a Account
	paused := inVain(t, &a, second, 0)
	if ask := askIn(&a, second, paused+second); ask != nil {
		t.Fatalf("it asks for %+v, want a pause of four windows", ask)
	}
	next := (paused + 2*second).Truncate(2*second) + 2*second
	ask := askIn(&a, 2*second, next)
	if ask == nil {
		t.Fatal("it pauses in windows of another length")
	}
	if again := askIn(&a, 2*second, next+2*second); again == nil || again.Salt == ask.Salt {
		t.Errorf("it asks the same hosts each time: %+v after %+v", again, ask)
	}
}

// traded returns an account with a share of the second that begins at 0, its trade, and the scene.
func traded(share int64) (*Account, *Trade, scene) {
	a := &Account{}
	a.Adopt(lendingAt("me", 0, second), bounds(share), nil)
	return a, &a.begun().Trade, a.scene(plans.Fleet{Total: 4 * share, Instances: 4, Owners: 4}, 0, 0)
}

// At an edge a guest is lent the part for its large call that stands, unless one of the host stands too and comes first in
// the window's order, and what its critical calls lacked, but for what the host's own critical calls want. What is kept for
// critical calls is not lent. An edge of windows of another length is none.
func TestWhatIsLentAtAnEdge(t *testing.T) {
	t.Parallel()
	for _, step := range []struct {
		what         string
		edge, urgent int64 // of the guest
		callers      Callers
		kept         int64
		restarts     bool
		stands       bool // a large call of the host
		first        bool // the host is, in the window's order
		lent         int64
	}{
		{"small calls wait at the host", 5, 0, Callers{Waiting: 30}, 0, false, false, true, 5},
		{"a large call waits at the host", 5, 0, Callers{Waiting: 30, Large: 30}, 0, false, false, true, 5},
		{"a large call of the host stands, and is first", 5, 0, Callers{Waiting: 30, Large: 30}, 0, false, true, true, 0},
		{"a large call of the host stands, and is second", 5, 0, Callers{Waiting: 30, Large: 30}, 0, false, true, false, 5},
		{"18 are kept", 5, 0, Callers{Waiting: 30}, 18, false, false, true, 2},
		{"the window's length has changed", 5, 0, Callers{Waiting: 30}, 0, true, false, true, 0},
		{"critical calls of the guest lack some", 0, 9, Callers{Waiting: 30}, 0, false, false, true, 9},
		{"critical calls wait at the host", 0, 9, Callers{Waiting: 30, Critical: 15}, 0, false, false, true, 5},
	} {
		_, trade, s := traded(20)
		trade.guests = asks{{guest: guestOf(s.Window, !step.first), edge: step.edge, edgeOf: s.Window.Index, urgent: step.urgent, urgentUntil: s.Window.End()}}
		if step.restarts {
			trade.restart()
		}
		if step.stands {
			q := &queue.Queue{}
			q.Push(&queue.Waiter{}, 30, clock.Forever, queue.Default, true)
			trade.claim.head(q, 0)
			trade.claim.stood, trade.claim.servedIn = s.Window.Index, s.Window.Index-1
		}
		lent := int64(0)
		trade.lendAtEdge(&s, step.callers, func(string) bool { return true },
			func() (n, kept int64) { return 20, step.kept }, func(_ string, n int64) { lent += n })
		if lent != step.lent {
			t.Errorf("%s: %d are lent, want %d", step.what, lent, step.lent)
		}
	}
}

// guestOf returns a guest that is before the instance "me" in a window's order, or after it.
func guestOf(w quota.Window, before bool) string {
	guest := "guest"
	for Before(guest, "me", w) != before {
		guest += "t"
	}
	return guest
}

// Where large calls of two guests stand, a host lends to that which is first in the window's order, whichever has asked
// first. So each host lends to the same one.
func TestAnEdgeGoesByTheOrder(t *testing.T) {
	t.Parallel()
	_, trade, s := traded(20)
	first, second := guestOf(s.Window, true), guestOf(s.Window, false)
	for _, ids := range [][]string{{first, second}, {second, first}} {
		trade.guests = nil
		for _, id := range ids {
			trade.guests = append(trade.guests, asked{guest: id, edge: 15, edgeOf: s.Window.Index})
		}
		left, lent := int64(20), map[string]int64{}
		trade.lendAtEdge(&s, Callers{}, func(string) bool { return true },
			func() (n, kept int64) { return left, 0 }, func(id string, n int64) { left, lent[id] = left-n, n })
		if lent[first] != 15 || lent[second] != 5 {
			t.Errorf("%v have asked: %v are lent, want 15 to %s", ids, lent, first)
		}
	}
}

// Which hosts are on duty goes by the shortest window in which the key is limited, for the guest as for the hosts: a shorter
// one may run because another key has an override.
func TestWhoIsOnDutyGoesByTheKeysWindow(t *testing.T) {
	t.Parallel()
	const wall = 67 * second // the minute 1 and the second 67
	key := func() *Account {
		var a Account
		a.Adopt(lendingAt("me", wall, second, time.Minute), func(w quota.Window) int64 {
			if w.Length == second {
				return shape.Unbounded
			}
			return 100
		}, nil)
		return &a
	}
	f := plans.Fleet{Total: 2500, Instances: 25, Owners: 25}
	guest := key()
	guest.Charge(90)
	guest.Refused(20, queue.Default, false)
	ask, _ := guest.Ask(f, Callers{Waiting: 30}, int64(wall))
	if ask == nil {
		t.Fatal("it asks for nothing")
	}
	ask.Poor, ask.Permits, ask.Part = 50, 50, 0 // few hosts are asked: those on duty
	var peers []lending.Peer
	for hash := range uint64(24) {
		peers = append(peers, lending.Peer{ID: fmt.Sprint(hash), Hash: hash})
	}
	var asked, onDuty []string
	for _, r := range ask.Requests(peers) {
		asked = append(asked, r.Host)
	}
	for _, p := range peers {
		host := key()
		host.begun()
		s := host.scene(f, p.Hash, int64(wall))
		if s.rules.OnDuty(s.hash, s.Window.Index) {
			onDuty = append(onDuty, p.ID)
		}
	}
	for _, id := range onDuty {
		if !slices.Contains(asked, id) {
			t.Errorf("%v are asked, not %s, which is on duty", asked, id)
		}
	}
	if len(onDuty) == 0 {
		t.Error("nobody is on duty")
	}
}

// A large call that stood in windows of another length may stand again: their numbers say nothing.
func TestALargeCallStandsAgainInOtherWindows(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 20})
	g, _ := lender(f)
	g.Changed(at(99 * second))
	c := &g.mu.borrower.claim
	c.stood, c.servedIn, c.left = 99, 99, 7
	f.shares = map[time.Duration]int64{2 * second: 20}
	if g.Changed(at(100 * second)); c.stood+c.servedIn+c.left != 0 {
		t.Errorf("%+v", c)
	}
}

// A host keeps what its critical calls wait for, but not for large ones if the guest's come first.
func TestAHostKeepsNothingForLargeCallsThatComeLater(t *testing.T) {
	t.Parallel()
	_, trade, s := traded(20)
	guest := "a"
	for !Before(guest, "me", s.Window) {
		guest += "a"
	}
	ask := asked{guest: guest, critical: 20, until: s.Window.Start()}
	for _, step := range []struct {
		callers Callers
		lent    int64
	}{
		{Callers{Waiting: 8, Critical: 8}, 12},
		{Callers{Waiting: 8, Critical: 8, Large: 8, LargeCritical: 8}, 20},
		{Callers{Waiting: 8, Critical: 8, Large: 5, LargeCritical: 5}, 17},
	} {
		if n := trade.lend(&s, stock{left: 20, due: 20}, step.callers, &ask); n != step.lent {
			t.Errorf("%+v: %d are lent, want %d", step.callers, n, step.lent)
		}
	}
}

// Those that wait are told by their classes, and large calls apart.
func TestCallersOfAGate(t *testing.T) {
	t.Parallel()
	g, _ := lender(newFixed(map[time.Duration]int64{second: 20}))
	q := &g.mu.queue
	q.Push(&queue.Waiter{}, 1, clock.Forever, queue.Critical, false)
	q.Push(&queue.Waiter{}, 20, clock.Forever, queue.Critical, true)
	q.Push(&queue.Waiter{}, 300, clock.Forever, queue.Default, false)
	q.Push(&queue.Waiter{}, 4000, clock.Forever, queue.Sheddable, true)
	q.Push(&queue.Waiter{}, 50000, clock.Forever, queue.Sheddable, false)
	want := Callers{Waiting: 54321, Large: 4020, Critical: 21, LargeCritical: 20, Sheddable: 54000}
	if c := g.callersLocked(); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
}

// Small calls have a rate of their own, and one that waits is no silence.
func TestATradeKnowsSmallCalls(t *testing.T) {
	t.Parallel()
	forecast := func(waiting int64) (all, small float64) {
		a, trade, s := traded(100)
		trade.claim.small = &lending.Flow{}
		trade.take(0, came{}, Callers{})
		trade.enter(a, s.Window, Loans{})
		for at := range int64(50) { // six calls in each 10 ms, two of them large
			trade.take(float64(10*at), came{all: 6 * at, large: 2 * at}, Callers{})
		}
		trade.take(950, came{all: 294, large: 98}, Callers{Waiting: waiting})
		all, small = trade.calls.Forecast(950, s.length, 0), trade.claim.small.Forecast(950, s.length, 0)
		trade.enter(a, quota.Window{Length: second, Index: s.Window.Index + 1}, Loans{})
		if used := trade.claim.small.Used(); used < 0.19 || used > 0.2 {
			t.Errorf("%.3f small calls in a millisecond, want 196 in a second", used)
		}
		return all, small
	}
	all, small := forecast(1)
	if silent, silentSmall := forecast(0); all < 2*silent || small < 2*silentSmall {
		t.Errorf("%.1f calls are expected, and %.1f small ones; %.1f and %.1f where nobody waits", all, small, silent, silentSmall)
	}
}

// Critical callers that wait are not silent: they call again once they are served.
func TestATradeKnowsThatCriticalCallersWait(t *testing.T) {
	t.Parallel()
	wants := func(waiting int64) float64 {
		a, trade, s := traded(100)
		trade.take(0, came{critical: 1}, Callers{})
		trade.enter(a, s.Window, Loans{})
		for at := range int64(31) { // one each 10 ms, until the share is spent
			trade.take(float64(10*at), came{all: at, critical: at}, Callers{})
		}
		trade.take(900, came{all: 30, critical: 30}, Callers{Waiting: waiting, Critical: waiting})
		trade.enter(a, quota.Window{Length: second, Index: s.Window.Index + 1}, Loans{})
		critical, _ := trade.flows()
		return critical.Forecast(0, s.length, 0)
	}
	if waits, silent := wants(20), wants(0); waits < 20 || silent > 5 {
		t.Errorf("%.1f critical calls are expected where some wait, want about 30; %.1f where nobody does", waits, silent)
	}
}

// Others are asked for a debt late in the window; at once if a caller was refused.
func TestADebtAloneIsAskedForLate(t *testing.T) {
	t.Parallel()
	late := second - time.Duration(lending.Late*milli)
	for _, refused := range []bool{false, true} {
		f := newFixed(map[time.Duration]int64{second: 20})
		g, _ := lender(f)
		g.Changed(at(0))
		g.mu.ledger.debt = 30
		g.Changed(at(ms))
		if refused {
			g.Enter(at(ms), nil, 1, 0, queue.Default)
		}
		var a Account
		a.Adopt(lendingAt("me", 0, second), bounds(20), nil)
		if a.Owe(50); refused {
			a.Refused(1, queue.Default, false)
		}
		fleet := plans.Fleet{Total: 80, Instances: 4, Owners: 4}
		ask, next := g.Look(at(2 * ms))
		ofKey, nextOfKey := a.Ask(fleet, Callers{}, int64(2*ms))
		if refused {
			if ask == nil || ofKey == nil {
				t.Errorf("a caller was refused: %+v and %+v are asked for", ask, ofKey)
			}
			continue
		}
		if ask != nil || ofKey != nil || next != int64(late) || nextOfKey != int64(late) {
			t.Errorf("asked for are %+v and %+v, and it looks again at %v and %v", ask, ofKey, next, nextOfKey)
		}
		ask, _ = g.Look(at(late))
		if ofKey, _ = a.Ask(fleet, Callers{}, int64(late)); ask == nil || ofKey == nil {
			t.Errorf("late in the window %+v and %+v are asked for", ask, ofKey)
		}
	}
}
