package change

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// StepError says that one change goes further than the greatest step allows.
type StepError struct {
	What string // both limits, the factor, and the greatest step
}

// Error adds the ways out.
func (e *StepError) Error() string {
	return e.What + ": if it is meant, use --force, or --max-step for this policy"
}

// CheckStep returns a *StepError if the limits of next go further at once than
// the greatest step, 0 for next's own: from what is in force at now, or from one
// announced limit to the next. What old announced already passes.
func CheckStep(old, next quota.Policy, now time.Time, most float64) error {
	most = cmp.Or(most, next.MaxStep, quota.DefaultMaxStep)
	was, will := lineOf(old), lineOf(next)
	before := old.LimitsAt(now.UnixNano())
	past, future := will.split(now)
	var steps line
	if len(past) > 0 {
		steps = line{{Limits: past[len(past)-1].Limits}}
	}
	for _, s := range append(steps, future...) {
		known := slices.ContainsFunc(was, func(e quota.LimitChange) bool { return e.From.Equal(s.From) && same(e.Limits, s.Limits) })
		if ratio := step(before, s.Limits); max(ratio, 1/ratio) > most && !known {
			what, when := number(ratio)+" times as much", ""
			switch {
			case ratio == 0:
				what = "nothing at all (pause says that better)"
			case ratio < 1:
				what = number(1/ratio) + " times less"
			}
			if !s.From.IsZero() {
				when = " at " + s.From.UTC().Format(time.RFC3339Nano)
			}
			return &StepError{fmt.Sprintf("%s -> %s%s is %s; the greatest step is %sx", quota.FormatLimits(before), quota.FormatLimits(s.Limits), when, what, number(most))}
		}
		before = s.Limits
	}
	return nil
}

// number rounds up to two digits after the point.
func number(f float64) string { return strconv.FormatFloat(math.Ceil(f*100)/100, 'f', -1, 64) }

// step returns the ratio that is furthest from 1 between limits of one window length, and
// between what both allow in the long run: a wrong unit changes the length. A
// limit of 0 gives no measure for what comes after it.
func step(old, next []quota.Limit) float64 {
	ratio := 1.0
	if len(old) == 0 || len(next) == 0 {
		return ratio
	}
	see := func(from, to float64) {
		if r := to / from; from != 0 && max(r, 1/r) > max(ratio, 1/ratio) {
			ratio = r
		}
	}
	for _, o := range old {
		for _, n := range next {
			if o.Window == n.Window {
				see(float64(o.Permits), float64(n.Permits))
			}
		}
	}
	see(rate(old), rate(next))
	return ratio
}

// rate is what limits allow in the long run, in permits a second.
func rate(limits []quota.Limit) float64 {
	least := math.Inf(1)
	for _, l := range limits {
		least = min(least, float64(l.Permits)/l.Window.Seconds())
	}
	return least
}
