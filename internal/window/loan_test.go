package window

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// loaned is what a gate has lent.
type loaned struct {
	guest string
	loan  protocol.Note
}

// lender returns a gate that lends and borrows as the incarnation "me", and a function that
// takes what it has lent since the last call.
func lender(f *fixed) (g *Gate, lent func() []loaned) {
	f.plan.Lending = plans.Lending{Self: "me", Lends: true, Borrows: true}
	var all []loaned
	g = NewGate(f, func(*queue.Waiter, queue.Grant, queue.Verdict) {}, nil)
	g.Lent = func(_, guest string, l protocol.Note) { all = append(all, loaned{guest, l}) }
	return g, func() []loaned { l := all; all = nil; return l }
}

// need is for so many permits, poor ones if poor.
func need(permits int64, poor bool) protocol.Need {
	n := protocol.Need{Permits: 1000 * permits}
	if poor {
		n.Poor = n.Permits
	}
	return n
}

// asked is Asked in the windows that run.
func (g *Gate) asked(now clock.Instant, guest string, n protocol.Need) int64 {
	return g.Asked(now, guest, g.mu.ledger.windows.Running, n)
}

func TestAHostChargesWhatItLends(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 30, 60 * second: 200})
	g, lent := lender(f)
	g.Changed(at(0))
	upTo(g, at(1), 3)
	for _, step := range []struct {
		at      time.Duration
		guest   string
		permits int64
		want    int64 // permits told in all, in the second
	}{
		{700 * ms, "a", 9, 9}, {710 * ms, "a", 2, 11}, {720 * ms, "b", 4, 4},
		{second + 700*ms, "a", 5, 5}, // another list of windows: its numbers begin anew
	} {
		g.Tick(at(step.at))
		g.asked(at(step.at), step.guest, need(step.permits, true))
		l := lent()
		if len(l) != 1 || l[0].guest != step.guest || l[0].loan.Permits[""] != step.want || len(l[0].loan.Windows) != 2 {
			t.Fatalf("at %v: lent %+v, want %d", step.at, l, step.want)
		}
	}
	if n := upTo(g, at(second+800*ms), 99); n != 25 {
		t.Errorf("%d permits are left, want 25", n)
	}
	u := g.Usage(at(second + 800*ms))
	if u.Issued != 28 || u.OverIssued != 0 || u.Limits[1].Used != 3+25 || u.Limits[1].Left != 200-48 || u.Lent != 20 {
		t.Errorf("%+v: want 28 issued to own callers, in the minute too, and 20 lent", u)
	}
}

func TestWhenAHostLendsNothing(t *testing.T) {
	for name, change := range map[string]func(f *fixed, g *Gate){
		"it lends":                       func(*fixed, *Gate) {},
		"it may not":                     func(f *fixed, _ *Gate) { f.plan.Lending.Lends = false },
		"the provider wants a pause":     func(f *fixed, _ *Gate) { f.shutUntil = int64(2 * second) },
		"it owes":                        func(_ *fixed, g *Gate) { owe(g, at(699*ms), 50) },
		"it is stale":                    func(f *fixed, _ *Gate) { f.plan.Proof = plans.Proof{Strict: true, Until: 1, WallUntil: 1} },
		"the shape is another":           func(f *fixed, _ *Gate) { f.plan.Shape = sliding },
		"nothing is refused anyway":      func(f *fixed, _ *Gate) { f.plan.Shadow = true },
		"windows are short":              func(f *fixed, _ *Gate) { f.shares = map[time.Duration]int64{200 * ms: 30} },
		"nothing binds":                  func(f *fixed, _ *Gate) { f.shares = map[time.Duration]int64{} },
		"the clock was set back":         func(f *fixed, g *Gate) { f.plan.Offset = -int64(5 * second) },
		"it is closed":                   func(_ *fixed, g *Gate) { g.Close() },
		"its own callers have taken all": func(_ *fixed, g *Gate) { upTo(g, at(699*ms), 99) },
	} {
		f := newFixed(map[time.Duration]int64{second: 30})
		g, lent := lender(f)
		g.Changed(at(0))
		windows := g.mu.ledger.windows.Running
		change(f, g)
		g.Changed(at(700 * ms))
		if name != "the clock was set back" && len(g.mu.ledger.windows.Running) > 0 {
			windows = g.mu.ledger.windows.Running
		}
		got := g.Asked(at(700*ms), "a", windows, need(5, true))
		if l := lent(); (got > 0) != (name == "it lends") || (len(l) > 0) != (got > 0) {
			t.Errorf("%s: lent %d, told %v", name, got, l)
		}
	}
}

func TestAGuestCountsTheLargestNumber(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 0, 60 * second: 0})
	f.total = 50
	g, _ := lender(f)
	g.Changed(at(0))
	in := func(seconds, minutes int64) []quota.Window {
		return []quota.Window{{Length: second, Index: seconds}, {Length: 60 * second, Index: minutes}}
	}
	for _, step := range []struct {
		what    string
		at      time.Duration
		windows []quota.Window
		permits int64
		want    int64
	}{
		{"of a window to come", 1, in(1, 0), 3, 0},
		{"of fewer limits", 1, in(0, 0)[:1], 3, 0},
		{"of nothing", 1, in(0, 0), 0, 0},
		{"less than nothing", 1, in(0, 0), -7, 0},
		{"a loan", 2, in(0, 0), 3, 3},
		{"told again", 3, in(0, 0), 3, 0},
		{"a larger number", 4, in(0, 0), 8, 5},
		{"an older one, late", 5, in(0, 0), 4, 0},
		{"of the next window", second, in(1, 0), 2, 2},
		{"of the window before", second + 1, in(0, 0), 9, 0},
		{"of more than there is", 2 * second, in(2, 0), math.MaxInt64, 50 - 10},
	} {
		if got := g.Borrow(at(step.at), "h", protocol.Note{Windows: step.windows, Permits: map[string]int64{"": step.permits}}); got != step.want {
			t.Errorf("%s: added %v, want %v", step.what, got, step.want)
		}
		if n := upTo(g, at(step.at), 99); n != step.want {
			t.Errorf("%s: %d permits, want %d", step.what, n, step.want)
		}
	}
	if u := g.Usage(at(2*second + 2)); u.Issued != 50 || u.OverIssued != 0 || u.Limits[0].Share != 0 || u.Borrowed != 50 {
		t.Errorf("%+v: want 50 issued and borrowed, a share of 0", u)
	}
	g.Tick(at(60 * second))
	if l := g.mu.ledger.hosts; len(l) != 0 {
		t.Errorf("it remembers %v of windows that have ended", l)
	}
}

// Numbers are of one incarnation, and of one list of windows. A relist forgets none.
func TestNumbersBelongToTheirWindowsAndIncarnation(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 90})
	g, lent := lender(f)
	g.Changed(at(0))
	told := func(d time.Duration, want int64) {
		t.Helper()
		g.Changed(at(d))
		g.asked(at(d), "a", need(10, true))
		if l := lent(); len(l) != 1 || l[0].loan.Permits[""] != want {
			t.Errorf("at %v: lent %+v, want %d", d, l, want)
		}
	}
	told(700*ms, 10)
	heard := protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 4}}
	g.Borrow(at(701*ms), "h", heard)
	f.set(func() { f.plan.Known = false }) // as during a relist
	g.Changed(at(705 * ms))
	f.set(func() { f.plan.Known = true })
	if n := g.Borrow(at(706*ms), "h", heard); n != 0 {
		t.Errorf("%d permits more of a number that was heard before", n)
	}
	told(710*ms, 20)
	f.set(func() { f.shares[60*second] = 90 })
	told(720*ms, 10) // charged to the minute
	f.set(func() { delete(f.shares, 60*second) })
	told(730*ms, 30) // the minute's account stays
	f.set(func() { f.plan.Lending.Self = "me again" })
	told(740*ms, 10)
	if n := upTo(g, at(750*ms), 99); n != 44 {
		t.Errorf("%d are left of 94, want 44", n)
	}
}

// Hosts that replace each other within a window lend no more than the total together.
func TestAGuestHasNoMoreThanTheTotal(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 2})
	f.total = 20
	g, lent := lender(f)
	g.Changed(at(0))
	for i, want := range []int64{9, 9, 0, 0} {
		if got := g.Borrow(at(1), fmt.Sprint("h", i), protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 9}}); got != want {
			t.Errorf("host %d: added %d, want %d", i, got, want)
		}
	}
	// What it has lent on, it may borrow again.
	g.asked(at(990*ms), "a", need(5, true))
	if l := lent(); len(l) != 1 || l[0].loan.Permits[""] != 5 {
		t.Fatalf("lent on %+v, want 5", l)
	}
	if got := g.Borrow(at(991*ms), "h9", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 9}}); got != 5 {
		t.Errorf("added %d, want 5", got)
	}
	if n := upTo(g, at(992*ms), 99); n != 20 {
		t.Errorf("%d permits, want 20", n)
	}
}

// Against a model: whatever a ring of gates asks, lends, hears late, twice or never, and
// takes, no more is used of a window than the sum of the shares.
func TestLendingNeverAddsPermits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type message struct {
			to   int
			from string
			loan protocol.Note
		}
		const gates = 3
		var all [gates]*Gate
		var fixes [gates]*fixed
		var sent []message
		shares := int64(0)
		lengths := []time.Duration{second}
		if rapid.Bool().Draw(t, "two limits") {
			lengths = append(lengths, 4*second)
		}
		for i := range all {
			n := rapid.Int64Range(0, 8).Draw(t, "share")
			shares += n
			fixes[i] = newFixed(map[time.Duration]int64{})
			for _, l := range lengths {
				fixes[i].shares[l] = n
			}
			g, _ := lender(fixes[i])
			fixes[i].plan.Lending.Self = fmt.Sprint("g", i)
			g.Lent = func(self, guest string, l protocol.Note) {
				sent = append(sent, message{int(guest[1] - '0'), self, l})
			}
			all[i] = g
		}
		for i := range all {
			fixes[i].total = max(1, shares)
			all[i].Changed(at(0))
		}
		used, now := map[quota.Window]int64{}, time.Duration(0)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			i := rapid.IntRange(0, gates-1).Draw(t, "gate")
			g := all[i]
			switch rapid.IntRange(0, 5).Draw(t, "does") {
			case 0:
				now += time.Duration(rapid.Int64Range(0, int64(400*ms)).Draw(t, "passes"))
			case 1:
				n := upTo(g, at(now), rapid.Int64Range(1, 20).Draw(t, "wants"))
				for _, w := range g.mu.ledger.windows.Running {
					used[w] += n
				}
			case 2, 3:
				g.Tick(at(now))
				other := (i + rapid.IntRange(1, gates-1).Draw(t, "guest")) % gates
				g.asked(at(now), fmt.Sprint("g", other), need(rapid.Int64Range(1, 12).Draw(t, "asks"), rapid.Bool().Draw(t, "poor")))
			default: // late, again, not in order, or never
				if len(sent) > 0 {
					m := sent[rapid.IntRange(0, len(sent)-1).Draw(t, "message")]
					all[m.to].Borrow(at(now), m.from, m.loan)
				}
			}
			for w, n := range used {
				if n > shares {
					t.Fatalf("%d used of %v, where shares sum to %d", n, w, shares)
				}
			}
			if u := g.Usage(at(now)); u.OverIssued > 0 {
				t.Fatalf("%d over its bound", u.OverIssued)
			}
		}
	})
}

// A caller waits for permits that others are asked for, though its own share will not serve
// it in time. Look asks for them.
func TestACallerWaitsForWhatIsAskedFor(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.total = 100
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	armed := clock.Forever
	g.Arm = func(at int64) { armed = min(armed, at) }
	g.Changed(at(0))
	upTo(g, at(1), 10)
	if _, v := g.Enter(at(2), &queue.Waiter{Payload: "a"}, 1, int64(500*ms), queue.Default); v != queue.Queued {
		t.Fatalf("verdict %d, want a place", v)
	}
	if armed > 2 {
		t.Fatalf("nobody looks before %v", time.Duration(armed))
	}
	ask, next := g.Look(at(5 * ms))
	if ask == nil || ask.Permits < 1 || ask.Self != "me" || !slices.Equal(ask.Windows, g.mu.ledger.windows.Running) {
		t.Fatalf("asks for %+v", ask)
	}
	if next > int64(60*ms) {
		t.Errorf("looks again at %v", time.Duration(next))
	}
	g.Borrow(at(10*ms), "h", protocol.Note{Windows: ask.Windows, Permits: map[string]int64{"": 1}})
	if diff := cmp.Diff([]string{"a@0s"}, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if _, next := g.Look(at(400 * ms)); next != clock.Forever {
		t.Errorf("looks again at %v though nobody calls", time.Duration(next))
	}
	// More than a share is served by borrowing, up to the total.
	if _, v := g.Enter(at(410*ms), &queue.Waiter{Payload: "b"}, 60, int64(500*ms), queue.Default); v != queue.Queued {
		t.Errorf("verdict %d for six shares", v)
	}
	if _, v := g.Enter(at(410*ms), &queue.Waiter{Payload: "c"}, 101, clock.Forever, queue.Default); v != queue.TooLarge {
		t.Errorf("verdict %d for more than the total", v)
	}
}

// A request for more than a share waits for loans, also behind others, and through news. It keeps
// its place until its deadline; small ones pass it when its claim has ended.
func TestARequestBeyondAShareWaitsForLoans(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	f.total, f.instances = 100, 10
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	upTo(g, at(1), 10)
	enter := func(now time.Duration, name string, n int64, deadline int64, want queue.Verdict) *queue.Waiter {
		t.Helper()
		w := &queue.Waiter{Payload: name}
		if _, v := g.Enter(at(now), w, n, deadline, queue.Default); v != want {
			t.Fatalf("%s: verdict %d, want %d", name, v, want)
		}
		return w
	}
	take := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, told.take()); diff != "" {
			t.Errorf("%s: told (-want +got):\n%s", what, diff)
		}
	}
	enter(2*ms, "small", 5, clock.Forever, queue.Queued)
	w := enter(3*ms, "large", 60, int64(5*second), queue.Queued)
	enter(4*ms, "too large", 101, clock.Forever, queue.TooLarge)
	enter(5*ms, "next", 3, clock.Forever, queue.Queued)
	f.shares[second] = 8 // less than was foreseen
	g.Changed(at(10 * ms))
	take("news")
	g.Tick(at(second))
	take("a window", "small@1s", "next@1s")
	g.Borrow(at(second+10*ms), "h", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 40}})
	take("too few loans")
	g.Tick(at(2 * second))
	g.Tick(at(3 * second))
	take("two windows more")
	g.Borrow(at(3*second+10*ms), "h", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 55}})
	take("loans", "large@3s")
	w.Payload = "again" // it may be used again
	if _, v := g.Enter(at(3*second+20*ms), w, 60, int64(5*second), queue.Default); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	g.Tick(at(5 * second))
	take("its deadline", "again!"+fmt.Sprint(queue.Limited))
}

// Of two limits the longer is used up: as long as an ask may bring something, a call is worth another try when the shortest
// window ends. Once nothing came in a whole window, none of the longer one is left elsewhere.
func TestWhoHasUsedUpALongerLimitTriesAgainAtItsEnd(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10, 60 * second: 10})
	f.total, f.instances = 100, 10
	g, _ := lender(f)
	g.Changed(at(0))
	upTo(g, at(1), 10)
	want := func(now, when time.Duration) {
		t.Helper()
		if got, known := g.Estimate(at(now), 1, queue.Default); !known || got != int64(when) {
			t.Errorf("at %v a call is worth another try at %v (%v), want %v", now, time.Duration(got), known, when)
		}
	}
	looks := func(from, until time.Duration) {
		for now := from; now < until; now += 5 * ms {
			g.Enter(at(now), nil, 1, 0, queue.Default) // refused
			g.Look(at(now))
			g.Tick(at(now))
		}
	}
	want(2, second)
	looks(5*ms, second)
	want(second+1, 60*second)
	looks(second+5*ms, 3*second)
	want(3*second+1, 60*second)
	g.Borrow(at(3*second+2), "h", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 1}})
	upTo(g, at(3*second+3), 1)
	looks(3*second+5*ms, 4*second)
	want(4*second+1, 5*second) // something came
	want(60*second, 60*second)
}

// A loan is of the short windows alone: a host lends whatever it has taken of a long limit, and a
// guest takes its own.
func TestALoanTakesNothingOfALongLimit(t *testing.T) {
	h, f := newFixed(map[time.Duration]int64{second: 30}), newFixed(map[time.Duration]int64{second: 0})
	h.long = quota.Limit{Permits: 500, Window: time.Hour}
	f.total, f.long = 30, h.long
	host, lent := lender(h)
	guest, _ := lender(f)
	host.Changed(at(0))
	guest.Changed(at(0))
	hour := protocol.BudgetAt(h.long, time.UTC, 0)
	funds(host, 701*ms, hour, 3, 497)
	host.asked(at(702*ms), "me", need(5, true))
	all := lent()
	if len(all) != 1 || all[0].loan.Permits[""] != 5 || budgetOf(host, 703*ms).Used != 0 {
		t.Fatalf("lent %+v, with 3 in hand", all)
	}
	if n := guest.Borrow(at(704*ms), "h", all[0].loan); n != 5 {
		t.Errorf("%d were added, want 5", n)
	}
	if n := upTo(guest, at(705*ms), 9); n != 0 {
		t.Errorf("%d permits of a long limit of which nothing was taken", n)
	}
	funds(guest, 706*ms, hour, 4, 493)
	if n := upTo(guest, at(707*ms), 9); n != 4 {
		t.Errorf("%d permits, want 4", n)
	}
	lender, borrower := host.Usage(at(708 * ms)).Limits[1], guest.Usage(at(708 * ms)).Limits[1]
	if lender.Used != 0 || lender.Left != 3 || borrower.Used != 4 || borrower.Left != 0 || host.Usage(at(709*ms)).OverIssued != 0 {
		t.Errorf("host %+v, guest %+v: want 0 and 4 issued", lender, borrower)
	}
}

// Where loans may come, a caller waits until its deadline, and it is worth trying again when the window
// ends. It is refused at once where they are no help: where a budget is spent, there is nobody to ask,
// or this instance itself has had all of the limit.
func TestWhoWaitsForLoans(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 10})
	f.total, f.instances = 100, 10
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	// The window has the index 0: as if others had been asked to leave a part of it to a large call, and none had been served.
	g.mu.borrower.claim.stood, g.mu.borrower.claim.servedIn = 0, -1
	upTo(g, at(1), 10)
	enter := func(now time.Duration, n int64, deadline time.Duration, want queue.Verdict) {
		t.Helper()
		if _, v := g.Enter(at(now), &queue.Waiter{Payload: n}, n, int64(deadline), queue.Default); v != want {
			t.Errorf("%d permits by %v: verdict %d, want %d", n, deadline, v, want)
		}
	}
	enter(2, 1, 8*second, queue.Queued)
	for now := 5 * ms; now < 8*second; now += 5 * ms {
		g.Look(at(now))
		g.Tick(at(now))
	}
	if l := told.take(); l != nil {
		t.Errorf("told before the deadline: %v", l)
	}
	if when, known := g.Estimate(at(7*second), 1, queue.Default); !known || when != int64(10*second) {
		t.Errorf("worth trying at %v (%v), want the window's end", time.Duration(when), known)
	}
	g.Tick(at(8 * second))
	if diff := cmp.Diff([]string{fmt.Sprint("1!", queue.Limited)}, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	enter(8*second, 80, 9*second, queue.Queued)
	enter(8*second, 10, 9*second, queue.Queued) // of these, 80 need not come first
	enter(8*second, 85, 9*second, queue.Behind) // 10 were issued, and 10 surely come before
	if when, _ := g.Estimate(at(8*second), 85, queue.Default); when != int64(10*second) {
		t.Errorf("85 are worth trying at %v", time.Duration(when))
	}
	enter(8*second, 85, 12*second, queue.Queued)
	g.Tick(at(9 * second))
	told.take()
	g.Borrow(at(9*second), "h", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 90}})
	if l := told.take(); len(l) != 1 {
		t.Errorf("told %v", l)
	}
	upTo(g, at(9*second), 100)
	enter(9*second, 1, 10*second-1, queue.Limited)
	enter(9*second, 1, 10*second, queue.Queued)
	g.Tick(at(10 * second))
	told.take()
	upTo(g, at(10*second), 100)
	// Where a budget lacks, loans are no help.
	f.long = quota.Limit{Permits: 500, Window: time.Hour}
	g.Changed(at(10 * second))
	funds(g, 10*second, protocol.BudgetAt(f.long, time.UTC, int64(10*second)), 0, 0)
	if _, v := g.Enter(at(10*second), &queue.Waiter{Payload: "c"}, 1, int64(18*second), queue.Default); v != queue.Limited {
		t.Errorf("verdict %d where a budget is spent", v)
	}
	f.long, f.instances, f.shares[10*second] = quota.Limit{}, 1, 100
	g.Changed(at(10*second + 2))
	upTo(g, at(10*second+3), 100)
	if _, v := g.Enter(at(10*second+4), &queue.Waiter{Payload: "b"}, 1, int64(18*second), queue.Default); v != queue.Limited {
		t.Errorf("verdict %d where there is nobody to ask", v)
	}
	if ask, next := g.Look(at(10*second + 5)); ask != nil || next != clock.Forever {
		t.Errorf("asks nobody for %+v, and looks again at %v", ask, time.Duration(next))
	}
}
