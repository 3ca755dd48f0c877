package window

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// lending is what a gate has lent.
type lending struct {
	guest string
	loan  protocol.Loan
}

// hostOf returns a gate that lends to guests, and a function that takes what it has
// lent since the last call.
func hostOf(f *fixed, guests ...string) (g *Gate, lent func() []lending) {
	f.plan.Guests = guests
	var all []lending
	g = NewGate(f, func(*Waiter, Grant, Verdict) {}, nil)
	g.Lent = func(guest string, l protocol.Loan) { all = append(all, lending{guest, l}) }
	return g, func() []lending { l := all; all = nil; return l }
}

func TestAHostLendsAThirdOnceAWindow(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 30, 60 * second: 200})
	g, lent := hostOf(f)
	g.Changed(at(0))
	upTo(g, at(1), 3)
	f.set(func() { f.plan.Guests = []string{"a", "b"} })
	g.Changed(at(100 * time.Millisecond))
	var got []int64
	take := func() {
		for _, l := range lent() {
			got = append(got, l.loan.Permits)
			if len(l.loan.Windows) != 2 || l.loan.Windows[0].Length != second || l.loan.Windows[1].Length != 60*second {
				t.Errorf("lent in %v", l.loan.Windows)
			}
		}
	}
	take()
	g.Changed(at(200 * time.Millisecond)) // nothing more in this window
	take()
	if n := upTo(g, at(300*time.Millisecond), 100); n != 27-9-6 {
		t.Errorf("%d permits are left for its own callers, want 12", n)
	}
	if wake := g.Wake(); wake != int64(second) {
		t.Errorf("it wakes at %v, want the next window's start", time.Duration(wake))
	}
	g.Tick(at(second))
	take()
	if diff := cmp.Diff([]int64{9, 6, 10, 7}, got); diff != "" {
		t.Errorf("lent (-want +got):\n%s", diff)
	}
	if u := g.Usage(at(second)); u.Issued != 15 || u.OverIssued != 0 || u.Limits[1].Used != 3+15+12+17 {
		t.Errorf("%+v, want 15 issued, and 47 used of the minute", u)
	}
	f.set(func() { f.plan.Guests = nil })
	g.Changed(at(second + 1))
	if wake := g.Wake(); wake != Forever {
		t.Errorf("it wakes at %v without guests", time.Duration(wake))
	}
}

// The queue waits behind what is lent, and a forecast knows of it.
func TestWaitersAreToldWhatIsLeftBesideLoans(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 3})
	var told told
	f.plan.Guests = []string{"a"}
	g := NewGate(f, told.decided, nil)
	g.Changed(at(0))
	if n := upTo(g, at(1), 9); n != 2 {
		t.Fatalf("%d permits beside a loan of one, want 2", n)
	}
	for i, want := range []time.Duration{second, second, 2 * second} {
		if when, known := g.Estimate(at(2), 1); !known || when != int64(want) {
			t.Errorf("waiter %d: %v, %v; want %v", i, time.Duration(when), known, want)
		}
		g.Enter(at(2), &Waiter{Payload: "w"}, 1, Forever)
	}
	g.Tick(at(second))
	if got := told.take(); len(got) != 2 {
		t.Errorf("served %v, want two", got)
	}
}

// Hosts that replace each other within a window lend no more than the total together.
func TestAGuestHearsOfNoMoreThanTheTotal(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 0})
	f.total = 20
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	loan := protocol.Loan{Windows: g.mu.ledger.running(), Permits: 9}
	for i, want := range []int64{9, 9, 2, 0} {
		if got := g.Borrow(at(1), fmt.Sprint("h", i), loan, []int64{9}); got != want {
			t.Errorf("host %d: added %d, want %d", i, got, want)
		}
	}
	if n := upTo(g, at(2), 99); n != 20 {
		t.Errorf("%d permits, want 20", n)
	}
}

func TestAGuestUsesALoanInItsWindowsOnce(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 0, 60 * second: 0})
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	host := newFixed(map[time.Duration]int64{second: 9, 60 * second: 100})
	h, lent := hostOf(host, "a")
	h.Changed(at(0))
	first := lent()[0].loan
	h.Tick(at(second))
	second1 := lent()[0].loan
	h.Tick(at(2 * second))
	third := lent()[0].loan
	h.Tick(at(3 * second))
	huge := lent()[0].loan
	huge.Permits = math.MaxInt64
	other := first
	other.Windows = first.Windows[:1]
	for _, step := range []struct {
		what string
		at   time.Duration
		loan protocol.Loan
		most int64 // the host's share of the minute; of the second it is 9
		want int64
	}{
		{"of a window to come", 1, second1, 100, 0},
		{"of fewer limits", 1, other, 100, 0},
		{"of nothing", 1, protocol.Loan{Windows: first.Windows}, 100, 0},
		{"of a stranger", 1, first, 0, 0},
		{"a loan", 2, first, 100, 3},
		{"told again", 3, first, 100, 0},
		{"of the next window", second, second1, 100, 3},
		{"of the window before", second + 1, first, 100, 0},
		{"told again", second + 2, second1, 100, 0},
		{"of more than is left of the host's minute", 2 * second, third, 8, 2},
		{"of more than the host's second", 3 * second, huge, 100, 9},
	} {
		if got := g.Borrow(at(step.at), "h", step.loan, []int64{9, step.most}); got != step.want {
			t.Errorf("%s: added %v, want %v", step.what, got, step.want)
		}
		if n := upTo(g, at(step.at), 99); n != step.want {
			t.Errorf("%s: %d permits, want %d", step.what, n, step.want)
		}
	}
	if u := g.Usage(at(3*second + 2)); u.Issued != 17 || u.OverIssued != 0 || u.Limits[0].Share != 0 {
		t.Errorf("%+v: want 17 issued, a share of 0", u)
	}
	want := map[lentIn]int64{{"h", huge.Windows[0]}: 9, {"h", huge.Windows[1]}: 17}
	if !maps.Equal(g.mu.ledger.hosts, want) {
		t.Errorf("it remembers %v, want the newest second and the minute: %v", g.mu.ledger.hosts, want)
	}
	if n := upTo(g, at(4*second), 99); n != 0 {
		t.Errorf("%d permits in the window after, which nobody has lent", n)
	}
}
