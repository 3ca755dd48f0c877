package quota

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// driftBound is r of the settle rule, inverted; package protocol says what it bounds.
const driftBound = 1000

// CheckTiming returns nil if the settle time is long enough for the freshness,
// the clock error and the longest window, so that the sum of all shares stays
// under the total: S >= S'(1+r)/(1-r) + 2e(1+r) + w*r with r = 1/1000 and
// w the longest window; under shapes other than ShapeFixed three of them and the
// guard.
// Times out of their bounds fail too; zero fields stand for their defaults.
func (p Policy) CheckTiming() error {
	p = p.WithDefaults()
	var errs problems
	p.checkTiming(&errs)
	return errors.Join(errs...)
}

func (p *Policy) checkTiming(errs *problems) {
	before := len(*errs)
	within(errs, "settle", p.Settle, minSettle, MaxSettle, "")
	within(errs, "freshness", p.Freshness, minFreshness, MaxSettle, "")
	if p.ClockError <= 0 || p.ClockError > MaxSettle {
		errs.add("clock_error", p.ClockError, fmt.Sprintf("must be more than 0 and at most %v", MaxSettle), "")
	}
	if len(*errs) > before {
		return
	}
	longest := min(p.LongestWindow(), MaxWindow) // a longer one is a problem of its own
	need := MinSettleFor(p.Freshness, p.ClockError, p.DriftWindow())
	if p.Settle < need {
		errs.add("settle", p.Settle, fmt.Sprintf("too short: with freshness %v, clock_error %v and a longest window of %v it must be at least %v",
			p.Freshness, p.ClockError, longest, need), "raise settle, or lower freshness")
	}
}

// MinSettleFor returns the shortest settle time for a freshness, a clock error
// and a longest window (Policy.DriftWindow), rounded up to a millisecond. No
// settle time is enough for one that is negative or above its bound (MaxSettle
// for the first two, four times MaxWindow for the third): the result is then
// the largest Duration.
func MinSettleFor(freshness, clockError, window time.Duration) time.Duration {
	if min(freshness, clockError, window) < 0 || max(freshness, clockError) > MaxSettle || window > (shapedWindows+1)*MaxWindow {
		return math.MaxInt64
	}
	need := ceilDiv(int64(freshness)*(driftBound+1), driftBound-1) + settleBeside(clockError, window)
	return time.Duration(ceilDiv(need, int64(time.Millisecond))) * time.Millisecond
}

// settleBeside is what the settle time needs beside the part for freshness:
// 2e(1+r) + w*r, in nanoseconds, each rounded up.
func settleBeside(clockError, window time.Duration) int64 {
	return ceilDiv(2*int64(clockError)*(driftBound+1), driftBound) + ceilDiv(int64(window), driftBound)
}

// defaultFreshness is five sixths of the settle time, or what the clock error
// and the longest window leave of it if that is less. Where they leave too
// little it is the former, and CheckTiming says what is needed.
func (p *Policy) defaultFreshness() time.Duration {
	usual := (p.Settle / 6 * 5).Truncate(time.Millisecond)
	if p.Settle > MaxSettle || p.ClockError < 0 || p.ClockError > MaxSettle {
		return usual
	}
	beside := settleBeside(p.ClockError, p.DriftWindow())
	spare := int64(p.Settle.Truncate(time.Millisecond)) - beside
	most := time.Duration(spare * (driftBound - 1) / (driftBound + 1)).Truncate(time.Millisecond)
	if most < minFreshness {
		return usual
	}
	return min(usual, most)
}

// ceilDiv divides and rounds up; a is not negative, b is positive.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
