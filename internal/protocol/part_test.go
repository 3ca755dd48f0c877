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

// flying draws a limit in flight, and the bounds of a policy for it: the least ones, or nearly the largest.
func flying(t *rapid.T) (quota.Limit, *quota.Policy) {
	l := quota.Limit{Permits: 1, Window: time.Duration(rapid.Int64Range(4, 86_400).Draw(t, "hold")) * time.Second, InFlight: true}
	part := l.Window / quota.HoldParts
	p := &quota.Policy{Limits: []quota.Limit{l}, Timing: quota.Timing{ClockError: rapid.SampledFrom([]time.Duration{time.Millisecond, part/2 - 1}).Draw(t, "clock error")}}
	p.Guard = rapid.SampledFrom([]time.Duration{0, max(0, part-2*p.ClockError-1)}).Draw(t, "time of a call")
	return l, p
}

// anyInstance draws the hash of an instance.
var anyInstance = rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(0)), rapid.Just(^uint64(0)))

// A call in flight that begins at any time and takes as long as its permit allows, and the way of its end to the
// provider, has ended before a part begins in which it counts no more, by any instance and any clock. It may take as
// long as the hold.
func TestACallInFlightEndsWhileItCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, p := flying(t)
		begins := rapid.Int64Range(0, 1<<60).Draw(t, "begins")
		by := BudgetOf(l, p, time.UTC, begins-int64(p.ClockError), anyInstance.Draw(t, "instance"))
		if begins-int64(p.ClockError) < by.Start || begins-int64(p.ClockError) >= by.End || by.Ends()-begins < int64(l.Window)-int64(p.ClockError) || by.End-by.Start != int64(l.Window/quota.HoldParts) {
			t.Fatalf("%+v", by)
		}
		ends := by.Ends() + int64(p.ClockError) + int64(p.Guard) // by a clock that is behind
		other := BudgetOf(l, p, time.UTC, ends+int64(p.ClockError), anyInstance.Draw(t, "other"))
		if later, counted := other.Part().Number-by.Part().Number, by.Part().Counted; later >= counted {
			t.Fatalf("%d parts later the call is under way, and %d count", later, counted)
		}
	})
}

// What an instance has taken that crashes at any time counts no more for any other one within 11 parts of the hold after
// that, by any clocks. So a 16th of the hold and more is left of one and a half holds in which others take it.
func TestPlacesOfACrashedInstanceAreBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, p := flying(t)
		crashes := rapid.Int64Range(1<<50, 1<<60).Draw(t, "crashes")
		e := int64(p.ClockError)
		taken := BudgetOf(l, p, time.UTC, crashes+e, anyInstance.Draw(t, "instance")) // by a clock that is ahead
		other := BudgetOf(l, p, time.UTC, crashes+11*int64(l.Window)/quota.HoldParts-e, anyInstance.Draw(t, "other"))
		if later, counted := other.Part().Number-taken.Part().Number, taken.Part().Counted; later < counted {
			t.Errorf("%d parts later the places are not back, as %d count", later, counted)
		}
		if left := l.Window*3/2 - 11*l.Window/quota.HoldParts; left < l.Window/16 {
			t.Errorf("%v are left in which others take them", left)
		}
	})
}
