package quota

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Shape defines the spans of time over which a limit counts.
type Shape string

// The shapes.
const (
	// ShapeFixed counts in windows that are aligned to the Unix epoch. Two of them
	// may be used up next to each other, at the boundary between them.
	ShapeFixed Shape = "fixed"
	// ShapeSliding lets no span of a window's length, wherever it begins, hold more than
	// the total. Issued permits come back a window's length later.
	ShapeSliding Shape = "sliding"
	// ShapeBucket lets permits accrue evenly, a total in every window's length,
	// and keeps Policy.Burst of them at most: a span of time d holds at most the
	// burst and total*d/window. It is the generic cell rate algorithm (ITU-T
	// I.371): a leaky bucket with a burst of 1, a token bucket else.
	ShapeBucket Shape = "bucket"
)

// maxCritical is the most that can be kept for critical calls, in percent.
const maxCritical = 90

// Bounds of a warm-up.
const (
	minWarmUp = 100 * time.Millisecond
	maxWarmUp = time.Hour
)

// shaped reports whether the policy's limits have another shape than ShapeFixed.
func (p *Policy) shaped() bool { return p.Shape != "" && p.Shape != ShapeFixed }

// DriftWindow is the time over which clocks may part between a view's lookback
// and a permit that depends on it: the longest window, and under shapes other
// than ShapeFixed, which look back further, three of them and the guard.
func (p *Policy) DriftWindow() time.Duration {
	longest, _ := p.windows()
	longest = min(longest, MaxWindow)
	if p.shaped() {
		return shapedWindows*longest + min(max(0, p.Guard), longest)
	}
	return longest
}

const shapedWindows = 3

func (p *Policy) checkShape(errs *problems) {
	within(errs, "burst", p.Burst, 0, MaxPermits, "0 stands for all of a limit's permits")
	p.checkBurst(errs)
	within(errs, "classes.critical", p.Critical, 0, maxCritical, "percent of each share; 0 keeps none")
	errs.add(p.Critical > 0 && p.Pacing == PacingEven, "classes.critical", p.Critical, "set pacing off, or leave classes out: critical calls that wait are served first in any case",
		"keeps permits of a window's start, and pacing even has none")
	errs.add(p.Critical > 0 && p.shaped(), "classes.critical", p.Critical, "set shape fixed, or leave classes out: critical calls that wait are served first in any case",
		"keeps permits within fixed windows, and shape is %s", p.Shape)
	if p.WarmUp != 0 {
		within(errs, "warm_up", p.WarmUp, minWarmUp, maxWarmUp, "0 switches it off")
	}
	if p.Shape != ShapeSliding && p.Shape != ShapeBucket {
		return
	}
	errs.add(p.Pacing != PacingOff, "pacing", strconv.Quote(string(p.Pacing)), "set pacing off; shape bucket with a small burst is even by itself",
		"paces within fixed windows, and shape is %s", p.Shape)
	p.checkTransit(errs)
	_, long := p.parts()
	fixed := slices.DeleteFunc(slices.Clone(long), func(l Limit) bool { return l.ByParts() })
	errs.add(p.Shape == ShapeSliding && len(fixed) > 0, "shape", strconv.Quote(string(p.Shape)),
		"write such a limit as 5000/h sliding, or set shape fixed", "is of windows of up to %v, and %s does not slide", MaxWindow, FormatLimits(fixed))
}

// leastTransit: permits are told apart by slots, of which a window has 500, and a
// guard is at least two of them.
const leastTransit = 250

// checkTransit checks the guard of a shape other than ShapeFixed: the time that a
// call may take to the provider.
func (p *Policy) checkTransit(errs *problems) {
	if p.Guard <= 0 {
		return
	}
	_, shortest := p.windows()
	errs.add(p.Guard < shortest/leastTransit, "guard", p.Guard, "0s switches it off",
		"under shape %s it must be at least %v, a %dth of the shortest window", p.Shape, shortest/leastTransit, leastTransit)
	if p.Shape != ShapeBucket {
		return
	}
	for _, l := range p.allLimits() {
		burst := l.Permits
		if p.Burst > 0 {
			burst = min(burst, p.Burst)
		}
		errs.add(l.Permits > 0 && float64(l.Permits)*float64(p.Guard) > float64(burst-1)*float64(l.Window), "guard", p.Guard,
			"lower the guard, or raise the burst", "as many permits of limit %v accrue within it as the burst holds", l)
	}
}

// checkBurst sees that every limit holds the burst: a bucket never holds more than
// its limit's permits, so a larger burst would be cut off without a word.
func (p *Policy) checkBurst(errs *problems) {
	if p.Shape != ShapeBucket {
		errs.add(p.Burst > 0 && p.Burst <= MaxPermits, "burst", p.Burst, "leave it out, or set shape bucket", "shape %s has none", p.Shape)
		return
	}
	short, _ := p.parts()
	for _, l := range short {
		if l.Permits <= 0 || l.Window <= 0 || p.Burst <= l.Permits || p.Burst > MaxPermits {
			continue
		}
		hint := "lower the burst"
		if n := (p.Burst + l.Permits - 1) / l.Permits; n <= int64(MaxWindow/l.Window) {
			hint = fmt.Sprintf("%v is the same rate, with room for it", Limit{Permits: n * l.Permits, Window: time.Duration(n) * l.Window})
		}
		errs.add(true, "burst", p.Burst, hint, "must be at most %d, the permits of limit %v", l.Permits, l)
		return
	}
}
