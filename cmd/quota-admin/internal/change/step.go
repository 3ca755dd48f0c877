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
	Old, New []quota.Limit
	From     time.Time // of the announced change that it is about; zero: now
	Factor   float64   // how many times more or less; +Inf for a limit that falls to 0
	Less     bool      // the limit falls
	Max      float64
}

// Error names both limits, the factor, and the ways out.
func (e *StepError) Error() string {
	return e.What() + ": if it is meant, use --force, or --max-step for this policy"
}

// What names both limits and the factor.
func (e *StepError) What() string {
	how, when := "times as much", ""
	if e.Less {
		how = "times less"
	}
	what := strconv.FormatFloat(math.Ceil(e.Factor*100)/100, 'f', -1, 64) + " " + how
	if math.IsInf(e.Factor, 1) {
		what = "nothing at all (pause says that better)"
	}
	if !e.From.IsZero() {
		when = " at " + e.From.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("%s -> %s%s is %s; the greatest step is %sx",
		quota.FormatLimits(e.Old), quota.FormatLimits(e.New), when, what, strconv.FormatFloat(e.Max, 'f', -1, 64))
}

// CheckStep returns a *StepError if the limits of next go further at once than
// the greatest step, 0 for next's own: from what is in force at now, or from one
// announced limit to the next. What old announced already passes.
func CheckStep(old, next quota.Policy, now time.Time, most float64) error {
	most = cmp.Or(most, next.MaxStep, quota.DefaultMaxStep)
	was, will := lineOf(old), lineOf(next)
	before := was.at(now)
	past, future := will.split(now)
	var steps line
	if len(past) > 0 {
		steps = line{{Limits: past[len(past)-1].Limits}}
	}
	for _, s := range append(steps, future...) {
		known := slices.ContainsFunc(was, func(e quota.LimitChange) bool { return e.From.Equal(s.From) && same(e.Limits, s.Limits) })
		if factor, less := step(before, s.Limits); factor > most && !known {
			return &StepError{Old: before, New: s.Limits, From: s.From, Factor: factor, Less: less, Max: most}
		}
		before = s.Limits
	}
	return nil
}

// step returns the largest factor between limits of one window length, and
// between what both allow in the long run: a wrong unit changes the length. A
// limit of 0 gives no measure for what comes after it.
func step(old, next []quota.Limit) (factor float64, less bool) {
	if len(old) == 0 || len(next) == 0 {
		return 1, false
	}
	see := func(from, to float64) {
		up := to / from
		switch {
		case from == 0:
		case up > 1 && up > factor:
			factor, less = up, false
		case up < 1 && 1/up > factor:
			factor, less = 1/up, true
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
	return max(factor, 1), less
}

// rate is what limits allow in the long run, in permits a second.
func rate(limits []quota.Limit) float64 {
	least := math.Inf(1)
	for _, l := range limits {
		least = min(least, float64(l.Permits)/l.Window.Seconds())
	}
	return least
}
