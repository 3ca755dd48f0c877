package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

const longWindow = 2 * time.Minute

// funded is a gate with 10 permits a second and 50 in two minutes. fund sets what was
// taken of the window that runs.
func funded(decided func(*queue.Waiter, queue.Grant, queue.Verdict)) (g *Gate, wants *int, fund func(d time.Duration, taken int64, spent bool) int64) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.long = quota.Limit{Permits: 50, Window: longWindow}
	g, wants = gateOf(f, 0, decided), new(int)
	g.Wanting = func() { *wants++ }
	g.Changed(at(0))
	return g, wants, func(d time.Duration, taken int64, spent bool) int64 {
		left := int64(-1)
		if spent {
			left = 0
		}
		return funds(g, d, protocol.BudgetAt(f.long, time.UTC, int64(d)), taken, left)
	}
}

// funds answers a gate at an instant that it has taken so many permits in a window, and that others
// are left; negative if that is not known. It returns what is taken then, and -1 if the window does
// not run.
func funds(g *Gate, d time.Duration, b protocol.Budget, taken, left int64) int64 {
	g.mu.Lock()
	g.currentLocked(at(d))
	u := escrow.KeyUse{Budget: b, Purse: escrow.Purse{Taken: taken}}
	of := func() *long {
		for b := range g.mu.ledger.binding {
			if b.Window == u.Window && b.Start == u.Start {
				return b
			}
		}
		return nil
	}
	if b := of(); b != nil {
		b.state = handedOut
	}
	g.unlock()
	if left >= 0 {
		u.Purse.Committed(escrow.Total{Out: b.Permits - left, Cluster: 1}, 0, 1, &escrow.Verdict{Cluster: 1})
	}
	g.Fund(at(d), u)
	g.mu.Lock()
	defer g.unlock()
	if b := of(); b != nil {
		return b.purse.Taken
	}
	return -1
}

// budgetOf returns what a gate tells of its only long limit.
func budgetOf(g *Gate, d time.Duration) protocol.BudgetUse {
	all := g.Usage(at(d)).Limits
	return *all[len(all)-1].Budget
}

// need returns the largest request that waits for its only long limit.
func (g *Gate) need() int64 {
	g.mu.Lock()
	defer g.unlock()
	return g.mu.ledger.budgets[0].need
}

func TestABudgetBindsByWhatWasTaken(t *testing.T) {
	var told told
	g, wants, fund := funded(told.decided)
	if n := upTo(g, at(1), 5); n != 0 || *wants != 1 {
		t.Errorf("%d permits of a budget of which nothing was taken, wanted %d times", n, *wants)
	}
	fund(2, 4, false)
	if n := upTo(g, at(3), 5); n != 4 || *wants != 2 {
		t.Errorf("%d permits of 4 taken, wanted %d times", n, *wants)
	}
	g.Enter(at(4), &queue.Waiter{Payload: "w"}, 2, int64(3*second), queue.Default)
	if u := budgetOf(g, 5); g.need() != 2 || u.Used != 4 {
		t.Errorf("%+v, want a need of 2 with 4 used", u)
	}
	fund(6, 7, false)
	if diff := cmp.Diff([]string{"w@0s"}, told.take()); diff != "" {
		t.Errorf("the waiter was not served of what was taken (-want +got):\n%s", diff)
	}
	if n := fund(7, 3, false); n != 6 {
		t.Errorf("%d can be left, want the 6 that are issued", n)
	}
	fund(7, 7, false)
	grant, _ := take(g, at(7), 1)
	if n := upTo(g, at(7), 5); n != 0 || !refund(g, at(7), grant, 1) || upTo(g, at(7), 5) != 1 {
		t.Errorf("a permit that was released is not issued again, or %d more", n)
	}
	if _, v := g.Enter(at(8), nil, 51, 0, queue.Default); v != queue.TooLarge {
		t.Errorf("51 of 50: verdict %d", v)
	}
	if g.Usage(at(9)).OverIssued != 0 {
		t.Error("over-issued")
	}
}

// A budget of which nothing was left is asked for again when its limit is raised.
func TestARaisedBudgetIsWanted(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.long = quota.Limit{Permits: 50, Window: longWindow}
	var told told
	g := gateOf(f, 0, told.decided)
	g.Changed(at(0))
	funds(g, 1, protocol.BudgetAt(f.long, time.UTC, 1), 0, 0)
	f.set(func() { f.long.Permits = 60 })
	g.Changed(at(2))
	if _, v := g.Enter(at(3), &queue.Waiter{Payload: "w"}, 4, int64(3*second), queue.Default); v != queue.Queued {
		t.Errorf("verdict %d, want a place in the queue", v)
	}
	if u := budgetOf(g, 4); u.Spent || g.need() != 4 || u.Permits != 60 {
		t.Errorf("%+v, want a need of 4", u)
	}
}

// A request beyond all that is in hand and left is told so, and keeps nobody else waiting.
func TestARequestBeyondABudgetsRest(t *testing.T) {
	var told told
	g, _, _ := funded(told.decided)
	rest := func(d time.Duration, left int64) {
		b := protocol.BudgetAt(quota.Limit{Permits: 50, Window: longWindow}, time.UTC, int64(d))
		funds(g, d, b, 2, left)
	}
	rest(1, 5)
	if _, v := g.Enter(at(1), &queue.Waiter{Payload: "late"}, 8, int64(5*second), queue.Default); v != queue.Limited {
		t.Errorf("8 of 7: verdict %d", v)
	}
	if _, v := g.Enter(at(1), &queue.Waiter{Payload: "a"}, 6, int64(5*second), queue.Default); v != queue.Queued {
		t.Errorf("6 of 7: verdict %d", v)
	}
	if _, v := g.Enter(at(1), &queue.Waiter{Payload: "b"}, 1, int64(5*second), queue.Default); v != queue.Queued {
		t.Errorf("1 more: verdict %d", v)
	}
	rest(2, 1)
	if diff := cmp.Diff([]string{fmt.Sprintf("a!%d", queue.Limited), "b@0s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAQueueWantsWhatIsLeft: where callers together want more of a long limit than is left, etcd is asked at once for what is
// left. It was not asked for a while, since its latest answer said that it has too few for all of them.
func TestAQueueWantsWhatIsLeft(t *testing.T) {
	var told told
	g, _, _ := funded(told.decided)
	for range 5 {
		if _, v := g.Enter(at(1), &queue.Waiter{Payload: "w"}, 1, clock.Forever, queue.Default); v != queue.Queued {
			t.Errorf("1 of 50: verdict %d", v)
		}
	}
	funds(g, 2, protocol.BudgetAt(quota.Limit{Permits: 50, Window: longWindow}, time.UTC, 1), 0, 3)
	if uses, _, _ := g.Uses(at(3), 8); len(uses) != 1 || uses[0].Use.Need != 3 {
		t.Errorf("etcd is asked for %+v, want the 3 that are left", uses)
	}
}

// Whoever leaves at its deadline is not before others any more at that instant.
func TestWhoLeavesIsNotBeforeOthers(t *testing.T) {
	var told told
	g, _, _ := funded(told.decided)
	b := protocol.BudgetAt(quota.Limit{Permits: 50, Window: longWindow}, time.UTC, 1)
	funds(g, 1, b, 0, 2)
	for _, c := range []struct {
		name  string
		class queue.Class
		until time.Duration
	}{{"default", queue.Default, 5 * second}, {"critical", queue.Critical, 5 * second}, {"leaves", queue.Critical, 40 * ms}} {
		if _, v := g.Enter(at(2), &queue.Waiter{Payload: c.name}, 1, int64(c.until), c.class); v != queue.Queued {
			t.Errorf("%s: verdict %d", c.name, v)
		}
	}
	g.Tick(at(40 * ms)) // the latest has pushed the first one back, which is judged now
	funds(g, 50*ms, b, 2, 0)
	if diff := cmp.Diff([]string{fmt.Sprintf("leaves!%d", queue.Limited), "critical@0s", "default@0s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// When nothing is left those that cannot wait for the next window are refused, others
// wait for it.
func TestASpentBudgetTellsWhenItsWindowEnds(t *testing.T) {
	var told told
	g, _, fund := funded(told.decided)
	g.Enter(at(1), &queue.Waiter{Payload: "a"}, 1, int64(5*second), queue.Default)
	g.Enter(at(1), &queue.Waiter{Payload: "b"}, 1, int64(3*time.Minute), queue.Default)
	fund(2, 0, true)
	if diff := cmp.Diff([]string{fmt.Sprintf("a!%d", queue.Limited)}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if when, known := g.Estimate(at(3), 1, queue.Default); !known || when != int64(longWindow) {
		t.Errorf("the next permit comes at %v, %v", time.Duration(when), known)
	}
	g.Tick(at(longWindow))
	if n := fund(longWindow-1, 9, false); n != -1 {
		t.Errorf("the window before was funded with %d", n)
	}
	fund(longWindow+1, 1, false)
	if diff := cmp.Diff([]string{"b@2m0s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever is taken, given back, lent, released and settled: no window's budget is
// exceeded by what is issued and paid, and what is borrowed is no part of it.
func TestBudgetsAgainstANaiveCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, _, fund := funded(func(*queue.Waiter, queue.Grant, queue.Verdict) {})
		now, taken, used := time.Duration(0), int64(0), int64(0)
		type held struct {
			grant queue.Grant
			n     int64
		}
		var permits []held
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			before := int64(now / longWindow)
			now += time.Duration(rapid.Int64Range(0, int64(20*second)).Draw(t, "later"))
			w := int64(now / longWindow)
			if w != before {
				taken, used = 0, 0
			}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				taken += rapid.Int64Range(0, 5).Draw(t, "take")
				taken = min(taken, 50)
				fund(now, taken, rapid.Bool().Draw(t, "spent"))
			case 1:
				taken = fund(now, max(0, taken-3), false)
			case 2, 3:
				n := rapid.Int64Range(1, 4).Draw(t, "n")
				if grant, ok := take(g, at(now), n); ok {
					used += n
					permits = append(permits, held{grant, n})
				}
			case 4:
				if k := len(permits); k > 0 && refund(g, at(now), permits[k-1].grant, permits[k-1].n) {
					used -= permits[k-1].n
					permits = permits[:k-1]
				}
			case 5:
				if k := len(permits); k > 0 {
					g.Correct(at(now), permits[k-1].grant, serials.Add(1), permits[k-1].n, permits[k-1].n+2)
					permits = permits[:k-1]
				}
			}
			b := budgetOf(g, now)
			if b.Taken != taken || b.Used < used || b.Used > taken || g.Usage(at(now)).OverIssued != 0 {
				t.Fatalf("at %v: %+v, want %d taken and at least %d used", now, b, taken, used)
			}
		}
	})
}

// Permits that are given back cannot be issued any more once Uses has handed them out. What callers
// have taken from the segment by then stays.
func TestWhatIsGivenBackIsNotIssued(t *testing.T) {
	g, _, fund := funded(nil)
	fund(1, 9, false)
	if n := upTo(g, at(2), 2); n != 2 {
		t.Fatal(n)
	}
	if all, used, limited := g.Uses(at(3), 8); len(all) != 0 && all[0].Back.N != 0 || !used || !limited {
		t.Errorf("%+v, %v, %v: nothing is given back yet", all, used, limited)
	}
	rested := time.Duration(longRest) + 4
	fund(rested-1, 9, false)
	upTo(g, at(rested+2), 3) // taken from the segment
	g.mu.Lock()
	g.mu.ledger.budgets[0].active, g.mu.ledger.budgets[0].funded, g.mu.seen = 0, 0, 5
	g.unlock()
	all, _, _ := g.Uses(at(rested+3), 8)
	if len(all) != 1 || all[0].Back.N != 4 || all[0].Purse.Taken != 5 {
		t.Fatalf("%+v, want the 4 that are not issued", all)
	}
	if n := upTo(g, at(rested+4), 9); n != 0 {
		t.Errorf("%d permits were issued that are given back", n)
	}
	g.Fund(at(rested+5), all[0])
	if u := budgetOf(g, rested+6); u.Taken != 5 || u.Used != 5 || g.Usage(at(rested+7)).OverIssued != 0 {
		t.Errorf("%+v, want 5 taken and used", u)
	}
}

// An instance at rest keeps what its last call needed for twice the time between two calls, and
// gives all else back.
func TestWhatTheLastCallNeededIsKept(t *testing.T) {
	for n := range int64(3) {
		n++
		g, _, fund := funded(nil)
		fund(1, 9, false)
		upTo(g, at(2), n)
		g.Uses(at(3), 8)
		next := 40 * second
		upTo(g, at(next), n)
		if all, _, _ := g.Uses(at(next+1), 8); len(all) == 1 && all[0].Back.N == 0 { // a look
			all[0].Purse.Taken = 9
			g.Fund(at(next+2), all[0])
		}
		back := func(d time.Duration, want int64) {
			t.Helper()
			all, _, _ := g.Uses(at(d), 8)
			for _, u := range all {
				if u.Back.N > 0 {
					want -= u.Back.N
				}
				g.Fund(at(d+1), u)
			}
			if want != 0 {
				t.Errorf("calls for %d, at %v: gives back %d too few", n, d, want)
			}
		}
		back(next+time.Duration(longRest)-1, 0)
		back(next+time.Duration(longRest)+10, 9-3*n)
		back(next+60*second, 0)
		back(next+79*second, 0)
		if next+81*second < longWindow {
			t.Fatal("the window is over before")
		}
	}
}

// A look at what is left that etcd did not answer is repeated as a look: an instance that has no calls takes nothing for
// that, once etcd answers again, nor does one whose limit was raised meanwhile.
func TestALookThatIsNotAnsweredTakesNothing(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 10})
	f.long = quota.Limit{Permits: 5000, Window: time.Hour}
	g := gateOf(f, 0, new(told).decided)
	g.Changed(at(0))
	looks := func(now time.Duration) escrow.KeyUse {
		t.Helper()
		uses, _, _ := g.Uses(at(now), 8)
		if len(uses) != 1 || !uses[0].Use.Look || uses[0].Back.N != 0 {
			t.Fatalf("after %v: %+v", now, uses)
		}
		return uses[0]
	}
	rests := func(now time.Duration) {
		t.Helper()
		if uses, _, _ := g.Uses(at(now), 8); len(uses) != 0 {
			t.Errorf("after %v: %+v", now, uses)
		}
	}
	for now := range time.Duration(3) {
		u := looks(2 * now * second)
		u.Away = true
		g.Fund(at(2*now*second+10*ms), u)
		rests(2*now*second + second)
	}
	u := looks(6 * second)
	f.set(func() { f.long.Permits = 6000 })
	g.Changed(at(6*second + 1))
	u.Purse.Committed(escrow.Total{Out: 1000, Cluster: 1}, 0, 1, &escrow.Verdict{Cluster: 1})
	g.Fund(at(6*second+10*ms), u)
	rests(7 * second)
	rests(36 * second)
	looks(37 * second)
}

// A sliding limit that one process has alone, and that is removed for a while, finds again what was issued: nobody else
// counts it. It counts no longer than if the limit had stayed.
func TestALongSlidingLimitThatComesBackCounts(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	limit := quota.Limit{Permits: 50, Window: time.Hour, Sliding: true}
	first := protocol.BudgetAt(limit, time.UTC, 0)
	counted := time.Duration(first.Until())
	f.long, f.whole = limit, true
	g := gateOf(f, 0, nil)
	change := func(d time.Duration, l quota.Limit) {
		f.set(func() { f.long = l })
		g.Changed(at(d))
	}
	g.Changed(at(0))
	play(t, g, []step{{10 * second, 20, 20}, {10 * second, 100, 30}})
	change(time.Minute, quota.Limit{})
	play(t, g, []step{{time.Minute, 7, 7}, {2 * time.Minute, 7, 7}}) // the part is over
	change(3*time.Minute, limit)
	play(t, g, []step{{3 * time.Minute, 100, 0}, {time.Hour, 100, 0}, {counted, 100, 50}})
	change(2*time.Hour, quota.Limit{})
	g.Changed(at(4 * time.Hour))
	if n := len(g.mu.ledger.budgets); n > 0 {
		t.Errorf("%d limits are kept of which nothing counts", n)
	}

	var k Account
	adopt := func(wall time.Duration, binds bool) {
		keys := keysAt(wall, second)
		keys.Over = int64(wall)
		b := protocol.BudgetAt(limit, time.UTC, int64(wall))
		b.Whole = true
		var all []protocol.Budget
		if binds {
			all = append(all, b)
		}
		keys.Budgets = all
		k.Adopt(keys, bounds(100), func() []protocol.Budget { return all })
	}
	adopt(0, true)
	k.Charge(50)
	adopt(time.Minute, false)
	adopt(2*time.Minute, false)
	adopt(3*time.Minute, true)
	if k.Left() != 0 {
		t.Errorf("%d left of a key's limit that came back", k.Left())
	}
}
