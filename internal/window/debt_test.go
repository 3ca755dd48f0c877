package window

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// owe takes out a debt of n permits.
func owe(g *Gate, at clock.Instant, n int64) bool {
	first, _ := g.Correct(at, queue.Grant{Epoch: 1}, serials.Add(1), 0, n)
	return first
}

// settled is a gate with shares of 10 a second and 45 in 4 s, and what is told of it.
func settled() (*fixed, *Gate, *told, func() []loaned) {
	f := newFixed(map[time.Duration]int64{second: 10, 4 * second: 45})
	told := &told{}
	g, lent := lender(f)
	f.plan.Lending.Borrows = false
	g.decided = told.decided
	g.Changed(at(0))
	return f, g, told, lent
}

func TestADebtIsPaidFirst(t *testing.T) {
	f, g, told, lent := settled()
	grant, _ := take(g, at(1), 8)
	w := &queue.Waiter{Payload: "late"}
	for _, step := range []struct {
		what string
		at   time.Duration
		do   func(at clock.Instant)
		debt int64
		left int64 // that a newcomer may have
		used int64 // of the second
	}{
		{"a call that cost as much", 2, func(at clock.Instant) { g.Correct(at, grant, 1<<40, 3, 3) }, 0, 2, 8},
		{"one that cost less", 3, func(at clock.Instant) { g.Correct(at, grant, 1<<40+1, 3, 1) }, 0, 4, 6},
		{"the same again", 4, func(at clock.Instant) {
			again, _ := g.Correct(at, grant, 1<<40+1, 3, 9)
			if _, back := g.Correct(at, grant, 1<<40+1, 1, 0); again || back {
				t.Error("a permit is settled twice")
			}
		}, 0, 4, 6},
		{"one that cost more: the permits left pay", 5, func(at clock.Instant) { g.Correct(at, grant, 1<<40+2, 2, 5) }, 0, 1, 9},
		{"much more", 6, func(at clock.Instant) { g.Correct(at, grant, 1<<40+3, 0, 16) }, 15, 0, 10},
		{"one that waits too short is refused", 7, func(at clock.Instant) {
			if _, v := g.Enter(at, w, 6, int64(1500*time.Millisecond), queue.Default); v != queue.Owes {
				t.Errorf("verdict %d", v)
			}
		}, 15, 0, 10},
		{"the next window pays", second, func(at clock.Instant) { g.Tick(at) }, 5, 0, 10},
		{"a larger share", second + 1, func(at clock.Instant) { f.shares[second] = 12; g.Changed(at) }, 3, 0, 12},
		{"a smaller one", second + 2, func(at clock.Instant) { f.shares[second] = 2; g.Changed(at) }, 3, 0, 12},
		{"of which a window pays", 2 * second, func(at clock.Instant) { g.Tick(at) }, 1, 0, 2},
		{"no policy", 2*second + 1, func(at clock.Instant) { f.shares = map[time.Duration]int64{}; g.Changed(at) }, 1, 0, 0},
		{"a cost that comes then", 2*second + 2, func(at clock.Instant) { owe(g, at, 1) }, 2, 0, 0},
		{"another policy, another window", 5 * second, func(at clock.Instant) {
			f.shares = map[time.Duration]int64{second: 10, 60 * second: 30}
			g.Changed(at)
		}, 0, 8, 2},
		{"a debt longer than the minute", 5*second + 1, func(at clock.Instant) { owe(g, at, 30) }, 22, 0, 10},
		{"paid as far as the minute goes", 7 * second, func(clock.Instant) { g.Tick(at(6 * second)); g.Tick(at(7 * second)) }, 2, 0, 10},
		{"no more", 8 * second, func(at clock.Instant) { g.Tick(at) }, 2, 0, 0},
		{"but by the next", 60 * second, func(at clock.Instant) { g.Tick(at) }, 0, 8, 2},
	} {
		t.Run(step.what, func(t *testing.T) {
			step.do(at(step.at))
			u := g.Usage(at(step.at))
			left, used := int64(0), int64(0)
			if len(u.Limits) > 0 {
				left, used = u.Limits[0].Left, u.Limits[0].Used
			}
			if diff := cmp.Diff([]int64{step.debt, step.left, step.used, 0}, []int64{u.Debt, left, used, u.OverIssued}); diff != "" {
				t.Errorf("debt, left, used, over-issued (-want +got):\n%s", diff)
			}
			if wake := g.Wake(); (wake == clock.Forever) != (step.debt == 0 || len(u.Limits) == 0) {
				t.Errorf("it wakes at %v with a debt of %d", time.Duration(wake), u.Debt)
			}
		})
	}
	if len(lent()) > 0 || len(told.take()) > 0 {
		t.Error("somebody was lent or told something")
	}
}

// Whoever waits is served behind the debt, when it was foreseen, or refused when the
// debt comes that makes it too late. A guest is lent nothing before.
func TestWaitersAndGuestsComeAfterADebt(t *testing.T) {
	_, g, told, lent := settled()
	upTo(g, at(1), 99)
	for _, w := range []struct {
		name string
		n    int64
		by   time.Duration
	}{{"a", 2, 1500 * ms}, {"b", 3, 3 * second}, {"c", 7, 4 * second}} {
		if _, v := g.Enter(at(2), &queue.Waiter{Payload: w.name}, w.n, int64(w.by), queue.Default); v != queue.Queued {
			t.Fatalf("%s: verdict %d", w.name, v)
		}
	}
	owe(g, at(3), 15)
	if diff := cmp.Diff([]string{"a!3"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The second that begins at 2 s has 5 left and serves b; the next, c.
	if u := g.Usage(at(4)); u.HeadAt != int64(2*second) {
		t.Errorf("the head's are foreseen at %v", time.Duration(u.HeadAt))
	}
	if when, known := g.Estimate(at(4), 3, queue.Default); !known || when != int64(3*second) {
		t.Errorf("3 more are foreseen at %v, %v", time.Duration(when), known)
	}
	g.Tick(at(second))
	g.asked(at(second), "a", need(1, true))
	if len(lent()) > 0 || len(told.take()) > 0 {
		t.Error("the debt is not paid, and something else is issued")
	}
	g.Tick(at(2 * second))
	g.Tick(at(3 * second))
	if diff := cmp.Diff([]string{"b@2s", "c@3s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Permits that come before there are enough for an instalment are nobody's, nor any guest's.
func TestNothingIsIssuedBesideADebt(t *testing.T) {
	for name, kind := range map[string]shape.Shape{"pacing": {}, "sliding": sliding, "bucket": accrues} {
		g, f := shapedGate(map[time.Duration]int64{second: 100}, 100, kind, nil)
		f.plan.Pacing.Even = !kind.Any()
		for ms := range int64(99) { // one each
			upTo(g, at(time.Duration(ms)*10*time.Millisecond), 1)
		}
		upTo(g, at(990*ms), 100)
		f.plan.Lending = plans.Lending{Self: "me", Lends: true}
		owe(g, at(990*ms), 50)
		for now := time.Second; ; now += 10 * ms {
			g.Changed(at(now))
			debt := g.Usage(at(now)).Debt
			if n := g.asked(at(now), "a", need(1, true)); n > 0 && debt > 0 {
				t.Fatalf("%s: %d are lent at %v, and a debt of %d is not paid", name, n, now, debt)
			}
			_, ok := take(g, at(now), 1)
			if debt := g.Usage(at(now)).Debt; ok && debt > 0 {
				t.Fatalf("%s: a permit at %v, and a debt of %d", name, now, debt)
			} else if debt == 0 {
				if now < 1400*ms || now > 1700*ms {
					t.Errorf("%s: the debt is paid at %v", name, now)
				}
				break
			}
		}
	}
}

// A debt delays a newcomer behind a long queue by what is owed, and no debt makes the gate go along one:
// whoever comes too late by it is refused at once in a short queue only.
func TestADebtBehindALongQueue(t *testing.T) {
	refused := 0
	waiting := func(waiters int, deadline int64) *Gate {
		g := gateOf(newFixed(map[time.Duration]int64{second: 100}), 0, func(*queue.Waiter, queue.Grant, queue.Verdict) { refused++ })
		g.Changed(at(0))
		upTo(g, at(0), 100)
		for range waiters {
			g.Enter(at(1), &queue.Waiter{}, 1, deadline, queue.Default)
		}
		return g
	}
	for waiters, want := range map[int]int{short: short, short + 1: 0} {
		g := waiting(waiters, int64(3*second)-1)
		if refused = 0; owe(g, at(2), 299) && refused != want {
			t.Errorf("%d of %d are refused at once, want %d", refused, waiters, want)
		}
	}
	g := waiting(1000, clock.Forever)
	for range 50 {
		owe(g, at(2), 1)
	}
	owe(g, at(3), 150)
	if when, known := g.Estimate(at(3), 1, queue.Default); !known || when != int64(13*second) {
		t.Errorf("foreseen at %v, %v; 200 are owed, and 1,000 wait", time.Duration(when), known)
	}
}

// A debt that no window pays for years ends no loop and no wait in time: its
// end is unknown.
func TestADebtForYears(t *testing.T) {
	_, g, _, _ := settled()
	for range 3 {
		owe(g, at(1), math.MaxInt64)
	}
	if u := g.Usage(at(2)); u.Debt != math.MaxInt64 || u.OverIssued != 0 {
		t.Errorf("%+v", u)
	}
	if when, known := g.Estimate(at(2), 1, queue.Default); known || when < int64(10*second) {
		t.Errorf("foreseen at %v, %v", time.Duration(when), known)
	}
	if _, v := g.Enter(at(2), &queue.Waiter{}, 1, int64(10*second), queue.Default); v != queue.Owes {
		t.Errorf("verdict %d for one that would wait 10 s", v)
	}
	if _, v := g.Enter(at(2), &queue.Waiter{}, 1, clock.Forever, queue.Default); v != queue.Queued {
		t.Errorf("verdict %d for one that waits for ever", v)
	}
	g.Close()
	if u := g.Usage(at(3)); u.Debt == 0 || owe(g, at(3), 1) {
		t.Errorf("closed: %+v, and it takes more", u)
	}
}

// naive is what must have come of a history, by sums over all that was booked: n
// permits at an instant, in aligned windows of every length.
type naive struct {
	shares map[time.Duration]int64
	booked []issued
	debt   int64
}

// left returns how many permits may be booked at an instant.
func (m *naive) left(now int64) int64 {
	left := shape.Unbounded
	for length, share := range m.shares {
		start := now - now%int64(length)
		for _, b := range m.booked {
			if b.at >= start {
				share -= b.n
			}
		}
		left = min(left, share)
	}
	return max(0, left)
}

// pay books as much of the debt as it can.
func (m *naive) pay(now int64) {
	n := min(m.debt, m.left(now))
	m.debt -= n
	m.booked = append(m.booked, issued{now, n})
}

func (m *naive) take(now, n int64) bool {
	if m.debt > 0 || n > m.left(now) {
		return false
	}
	m.booked = append(m.booked, issued{now, n})
	return true
}

// TestDebtsAgainstNaiveSums: every request is decided as by sums, and what calls have
// cost is booked or owed, whatever the times, the shares and the costs.
func TestDebtsAgainstNaiveSums(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(from, to int64, what string) int64 { return rapid.Int64Range(from, to).Draw(t, what) }
		shares := map[time.Duration]int64{second: draw(0, 12, "a second")}
		if rapid.Bool().Draw(t, "two limits") {
			shares[5*second] = draw(0, 40, "five seconds")
		}
		f, m := newFixed(shares), &naive{shares: shares}
		g := gateOf(f, 0, nil)
		g.Changed(at(0))
		type call struct {
			grant queue.Grant
			at, n int64
		}
		var calls []call
		now, cost := int64(0), int64(0)
		for range draw(1, 80, "steps") {
			next := now + rapid.SampledFrom([]int64{0, draw(0, int64(second), "later"), draw(0, int64(9*second), "much later")}).Draw(t, "time")
			for wake := g.Wake(); wake <= next; wake = g.Wake() {
				now = wake
				g.Tick(at(time.Duration(now)))
				m.pay(now)
			}
			now = next
			in := at(time.Duration(now))
			switch n := draw(1, 9, "n"); draw(0, 5, "what") {
			case 0, 1, 2:
				grant, ok := take(g, in, n)
				if ok != m.take(now, n) {
					t.Fatalf("at %v, %d permits: granted %v; debt %d, booked %v", time.Duration(now), n, ok, m.debt, m.booked)
				}
				if ok {
					calls = append(calls, call{grant, now, n})
					cost += n
				}
			case 3:
				if got := upTo(g, in, n); got > 0 && !m.take(now, got) {
					t.Fatalf("at %v, %d permits in a batch; debt %d, booked %v", time.Duration(now), got, m.debt, m.booked)
				} else {
					cost += got
				}
			case 4:
				if len(calls) == 0 {
					break
				}
				c := calls[0]
				calls = calls[1:]
				actual := draw(0, 3*c.n, "actual")
				if first, _ := g.Correct(in, c.grant, serials.Add(1), c.n, actual); !first {
					t.Fatal("not settled")
				}
				if actual > c.n {
					m.debt += actual - c.n
					m.pay(now)
					cost += actual - c.n
				} else if c.at/int64(second) == now/int64(second) {
					m.booked = append(m.booked, issued{c.at, actual - c.n})
					m.pay(now)
					cost -= c.n - actual
				}
			case 5:
				shares[second] = draw(0, 12, "another share")
				g.Changed(in)
				m.pay(now)
			}
			u := g.Usage(in)
			if u.Debt != m.debt || u.Issued+u.Debt != cost || u.OverIssued != 0 {
				t.Fatalf("at %v: %+v; by sums a debt of %d, a cost of %d", time.Duration(now), u, m.debt, cost)
			}
		}
	})
}

// TestDebtsAreForeseen: a request behind a debt is served when that was foreseen, under
// every shape and pacing; nothing is over-issued, and the debt is gone then. What is foreseen takes no
// notice of the instalments in which a debt is paid. So it is never late, and under two shapes early:
//   - A bucket rounds what each instalment takes to accrue up to a nanosecond.
//   - In a sliding window an instalment waits until as many permits have left the window, and all its
//     permits count from then on. Each time that the debt uses the window up, less than an instalment's
//     permits come later by that: less than an eighth of the window's, so a debt of up to eight shares
//     is paid at most a window later. Where instalments are of one permit, nothing comes later.
func TestDebtsAreForeseen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]shape.Shape{{}, sliding, accrues}).Draw(t, "shape")
		length := time.Duration(rapid.Int64Range(100, 3000).Draw(t, "length")) * ms
		share := rapid.Int64Range(1, 40).Draw(t, "share")
		now, served := int64(0), int64(-1)
		g, f := shapedGate(map[time.Duration]int64{length: share}, rapid.Int64Range(1, share).Draw(t, "burst"), kind,
			func(*queue.Waiter, queue.Grant, queue.Verdict) { served = now })
		if !kind.Any() {
			f.plan.Pacing = shape.Pacing{Even: rapid.Bool().Draw(t, "even"), Phase: rapid.Uint64().Draw(t, "phase")}
			g.Changed(at(0))
		}
		in := func() clock.Instant { return clock.Instant{Mono: now, Wall: now} }
		for range rapid.IntRange(1, 8).Draw(t, "before") {
			now += rapid.Int64Range(0, int64(length)/2).Draw(t, "later")
			g.Tick(in())
			upTo(g, in(), rapid.Int64Range(1, share).Draw(t, "taken"))
		}
		debt := rapid.Int64Range(1, 5*share).Draw(t, "debt")
		owe(g, in(), debt)
		n := rapid.Int64Range(1, share).Draw(t, "n")
		when, known := g.Estimate(in(), n, queue.Default)
		switch _, v := g.Enter(in(), &queue.Waiter{}, n, clock.Forever, queue.Default); v {
		case queue.Granted:
			served = now
		case queue.Queued:
		default:
			return // more than the burst
		}
		for wakes := 0; served < 0; wakes++ {
			if wakes > 10_000 {
				t.Fatal("never served")
			}
			now = max(now, g.Wake())
			g.Tick(in())
		}
		early := int64(0)
		switch {
		case kind.Bucket:
			early = debt
		case kind.Sliding && share/shape.DebtParts > 1:
			early = int64(length + 2*protocol.SlotOf(length)) // the slots that a permit counts in
		}
		if u := g.Usage(in()); !known || served < when || served > when+early || u.Debt > 0 || u.OverIssued > 0 {
			t.Fatalf("served at %v, foreseen at %v (%v): %+v", time.Duration(served), time.Duration(when), known, fmt.Sprint(u))
		}
	})
}

// TestALargeDebtIsPaidAtTheFullRate: with a burst of 10 permits at 100,000 a second, a
// million are paid in ten seconds, also if the gate is looked at each 10 ms only, and in few
// steps.
func TestALargeDebtIsPaidAtTheFullRate(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100_000})
	f.plan.Shape, f.burst = shape.Shape{Bucket: true, Unaligned: true}, 10
	g, steps := gateOf(f, 0, func(*queue.Waiter, queue.Grant, queue.Verdict) {}), 0
	g.Booked = func([]Use) { steps++ }
	g.Changed(at(0))
	owe(g, at(1), 1_000_000)
	for now := 10 * time.Millisecond; now <= 10*second+100*time.Millisecond; now += 10 * time.Millisecond {
		g.Tick(at(now))
	}
	if u := g.Usage(at(10*second + 100*time.Millisecond)); u.Debt != 0 || u.OverIssued != 0 || steps > 5000 {
		t.Errorf("%d permits are owed, %d over, after %d steps", u.Debt, u.OverIssued, steps)
	}
	if _, ok := take(g, at(10*second+101*time.Millisecond), 11); ok {
		t.Error("the bucket holds more than its burst")
	}
}
