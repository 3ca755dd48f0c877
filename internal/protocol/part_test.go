package protocol

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// What arrives at the provider in a window's length, wherever it begins, was issued in no more parts than are
// counted, by clocks and calls within the bounds that a valid policy has.
func TestAWindowMeetsNoMoreParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := quota.Limit{Permits: 1, Window: time.Duration(rapid.Int64Range(61, 86_400).Draw(t, "window")) * time.Second, Sliding: true}
		p := quota.Policy{Limits: []quota.Limit{l}}
		p.ClockError = rapid.SampledFrom([]time.Duration{time.Millisecond, l.Window / 201, time.Duration(rapid.Int64Range(1, int64(l.Window/100)).Draw(t, "error"))}).Draw(t, "clock error")
		p.Guard = rapid.SampledFrom([]time.Duration{0, max(0, l.Window/100-2*p.ClockError-1)}).Draw(t, "time of a call")
		if p.WithDefaults().Settle < quota.MinSettleFor(p.WithDefaults().Freshness, p.ClockError, time.Second) {
			p.Settle = time.Minute
		}
		if 2*p.ClockError+p.Guard >= l.Window/100 {
			return // refused: quota's tests
		}
		first := rapid.Int64Range(0, 1<<60).Draw(t, "first arrival")
		// The earliest issue of a call that arrives first, by a clock that is behind, and the latest of one that
		// arrives a window later, by a clock that is ahead.
		a := BudgetAt(l, time.UTC, first-int64(p.Guard+p.ClockError))
		b := BudgetAt(l, time.UTC, first+int64(l.Window+p.ClockError))
		if n := b.Part().Number - a.Part().Number + 1; n > a.Part().Counted {
			t.Fatalf("%d parts of %d", n, a.Part().Counted)
		}
		if a.End != BudgetAt(l, time.UTC, a.End).Start || a.After(3) != BudgetAt(l, time.UTC, a.Start+3*(a.End-a.Start)).Start || a.End-a.Start < int64(l.Window)/100 {
			t.Fatalf("%+v", a)
		}
	})
}

// A call in flight that begins at any time and takes as long as its permit allows, and the way of its end to the
// provider, has ended before a part begins in which it counts no more, by any instance and any clock. It may take as
// long as the hold.
func TestACallInFlightEndsWhileItCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := quota.Limit{Permits: 1, Window: time.Duration(rapid.Int64Range(4, 86_400).Draw(t, "hold")) * time.Second, InFlight: true}
		part := l.Window / 4
		p := &quota.Policy{Limits: []quota.Limit{l}, Timing: quota.Timing{ClockError: rapid.SampledFrom([]time.Duration{time.Millisecond, part/2 - 1}).Draw(t, "clock error")}}
		p.Guard = rapid.SampledFrom([]time.Duration{0, max(0, part-2*p.ClockError-1)}).Draw(t, "time of a call")
		hash := rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(0)), rapid.Just(^uint64(0)))
		begins := rapid.Int64Range(0, 1<<60).Draw(t, "begins")
		by := BudgetOf(l, p, time.UTC, begins-int64(p.ClockError), hash.Draw(t, "instance"))
		if begins-int64(p.ClockError) < by.Start || begins-int64(p.ClockError) >= by.End || by.Ends()-begins < int64(l.Window)-int64(p.ClockError) || by.End-by.Start != int64(part) {
			t.Fatalf("%+v", by)
		}
		ends := by.Ends() + int64(p.ClockError) + int64(p.Guard) // by a clock that is behind
		other := BudgetOf(l, p, time.UTC, ends+int64(p.ClockError), hash.Draw(t, "other"))
		if later, counted := other.Part().Number-by.Part().Number, by.Part().Counted; later >= counted {
			t.Fatalf("%d parts later the call is under way, and %d count", later, counted)
		}
	})
}
