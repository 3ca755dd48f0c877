package window

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// Callers who wait take each window at its edge, before an ask can come. A guest without a
// share is lent its part there, until it has a share of its own.
func TestAJoinerIsLentItsPartAtTheEdge(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 120
	g, lent := lender(f)
	from := map[string]time.Duration{"joiner": 3 * second, "modest": 3 * second, "sooner": 2 * second, "late": 2 * second, "gone": math.MaxInt64}
	g.LendsTo = func(guest string, _ int64) (int64, bool) { return int64(from[guest]), true }
	f.plan.Lending.Instances = 4
	g.Changed(at(0))
	upTo(g, at(1), 40)
	for range 200 {
		if _, v := g.Enter(at(2), &queue.Waiter{}, 1, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("verdict %d, want queued", v)
		}
	}
	for guest, permits := range map[string]int64{"joiner": 30, "modest": 3, "sooner": 30, "old": 30} {
		if n := g.asked(at(300*ms), guest, need(permits, true)); n != 0 {
			t.Fatalf("%s is lent %d of what callers wait for", guest, n)
		}
	}
	g.asked(at(900*ms), "late", need(3, false)) // the rest of a fair share is no permit
	for _, want := range []struct {
		at  time.Duration
		all map[string]int64
	}{
		{second, map[string]int64{"joiner": 10, "modest": 3, "sooner": 10, "late": 1}},
		{second + 500*ms, map[string]int64{}}, // once in a window
		{2 * second, map[string]int64{"joiner": 10, "modest": 3}},
		{3 * second, map[string]int64{}},
	} {
		g.Changed(at(want.at))
		g.asked(at(want.at+ms), "joiner", need(1, false)) // it has its part
		got := map[string]int64{}
		for _, l := range lent() {
			got[l.guest] = l.loan.Permits[""]
		}
		if diff := cmp.Diff(want.all, got); diff != "" {
			t.Errorf("at %v (-want +got):\n%s", want.at, diff)
		}
	}
	g.asked(at(3*second+ms), "gone", need(30, true))
	g.Changed(at(7 * second))
	if l := lent(); len(l) != 1 {
		t.Errorf("lent %v, want a part to the one that asked 4 windows ago", l)
	}
	g.Changed(at(8 * second))
	if l := lent(); len(l) != 0 {
		t.Errorf("lent %v to an instance that asked long ago", l)
	}
	if u := g.Usage(at(8 * second)); u.OverIssued != 0 {
		t.Errorf("%d over the share", u.OverIssued)
	}
}

// Who waits for a first permit may never take more, so an instance without a share asks for one,
// though a fair share is a thousand.
func TestWhoWaitsForAFirstPermitAsksForOne(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 0})
	f.total = 2000
	f.instances = 1
	g, _ := lender(f)
	f.plan.Lending.Instances = 2
	g.Changed(at(0))
	if ask, _ := g.Look(at(1)); ask != nil {
		t.Fatalf("nobody waits, and it asks for %+v", ask)
	}
	g.Await(at(2), 1)
	if ask, _ := g.Look(at(3)); ask == nil || ask.Permits != 1 || ask.Poor != 1 {
		t.Errorf("it asks for %+v, want one permit, which it lacks to its fair share", ask)
	}
}

// A call that was refused before anything was known comes again only some time later. The
// instance has asked for a permit by then.
func TestACallRefusedBeforeThereIsAPlanAsksForAPermit(t *testing.T) {
	f := newFixed(nil)
	g, _ := lender(f)
	lends := f.plan.Lending
	f.plan.Lending = plans.Lending{}
	if _, v := g.Enter(at(1), nil, 1, 0, queue.Default); v != queue.Limited {
		t.Fatalf("verdict %d, want limited", v)
	}
	armed := clock.Forever
	g.Arm = func(at int64) { armed = at }
	f.shares, f.total, f.instances, f.plan.Lending = map[time.Duration]int64{second: 0}, 2000, 1, lends
	f.plan.Lending.Instances = 2
	g.Changed(at(2))
	if armed != at(2).Mono {
		t.Errorf("it looks at %d, want at once", armed)
	}
	if ask, _ := g.Look(at(2)); ask == nil || ask.Permits != 1 || ask.Poor != 1 {
		t.Errorf("it asks for %+v, want one permit, which it lacks to its fair share", ask)
	}
}

// A host whose callers have just taken half of its share expects them to want the rest. It lends a
// guest without a share its part all the same, once in a window, and the others nothing.
func TestAJoinerIsLentItsPartAtOnce(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 120
	g, _ := lender(f)
	g.LendsTo = func(guest string, _ int64) (int64, bool) {
		if guest == "owner" {
			return 0, true
		}
		return int64(2 * second), true
	}
	f.plan.Lending.Instances = 4
	g.Changed(at(0))
	upTo(g, at(500*ms), 40)
	g.Changed(at(second))
	upTo(g, at(second+ms), 20)
	for _, ask := range []struct {
		guest   string
		permits int64
		lent    int64
	}{
		{"owner", 30, 0},
		{"joiner", 4, 4},
		{"joiner", 30, 6},
		{"joiner", 30, 0},
		{"other", 30, 10},
		{"third", 30, 0}, // nothing is left
	} {
		if n := g.asked(at(second+10*ms), ask.guest, need(ask.permits, true)); n != ask.lent {
			t.Errorf("%s is lent %d of %d, want %d", ask.guest, n, ask.permits, ask.lent)
		}
	}
}

// A joiner that has left or crashed before it had a share uses no part.
func TestAJoinerThatHasLeftIsLentNothing(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 120
	g, lent := lender(f)
	f.plan.Lending.Instances = 4
	gone := ""
	g.LendsTo = func(guest string, now int64) (int64, bool) {
		return int64(4 * second), guest != gone || now < at(2*second).Mono
	}
	g.Changed(at(0))
	upTo(g, at(1), 40)
	for _, guest := range []string{"stays", "leaves"} {
		g.asked(at(300*ms), guest, need(30, true))
	}
	gone = "leaves"
	for i, want := range []int{2, 1} {
		if g.Changed(at(time.Duration(i+1) * second)); len(lent()) != want {
			t.Errorf("not %d are lent their parts of window %d", want, i+1)
		}
	}
}

// A permit that is lent on, or comes back, is counted once: no more are on loan than there are.
func TestAPermitOnLoanIsCountedOnce(t *testing.T) {
	of := map[string]*ledger{}
	for _, name := range []string{"a", "b", "c"} {
		of[name] = &ledger{Account: Account{windows: &plans.Windows{Over: int64(second)}}}
	}
	lend := func(host, guest string, n int64) {
		windows := []quota.Window{{Length: second}}
		of[host].guests.add(guest, windows, n)
		of[guest].hosts.add(host, windows, n)
	}
	lend("a", "b", 100)
	lend("b", "c", 100)
	lend("c", "a", 30)
	for name, want := range map[string]Loans{"a": {Lent: 70, Guests: 1}, "b": {}, "c": {Borrowed: 70, Hosts: 1}} {
		of[name].endLoans()
		if got := of[name].ended.net(); got != want {
			t.Errorf("%s has the loans %+v, want %+v", name, got, want)
		}
	}
}
