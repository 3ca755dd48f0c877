package load

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Never is an instant after every other: that of what has not happened.
const Never = int64(math.MaxInt64)

// Change is a policy's limits being written. When it was committed is known to
// lie between Sent and Acked. The first change of a timeline is the policy that
// was there before the fleet.
type Change struct {
	Sent   int64
	Acked  int64 // Never if no answer came: it may have been committed or not
	Limits []quota.Limit
}

// Timeline is which limits were in force when, in order.
type Timeline struct {
	Changes []Change
	// Settle is the policy's settle time: a change binds the windows that start
	// so long after it.
	Settle time.Duration
	// Slack is what settling may take beyond that: the clock error that the
	// policy allows.
	Slack time.Duration
}

// LimitAt returns the permits that the fleet may issue for a window: the largest
// total of the policies in force from one settle time before the window until its
// end. ok is false if one of them sets no limit of that length.
func (t *Timeline) LimitAt(length time.Duration, start int64) (permits int64, ok bool) {
	return t.mostIn(length, start-int64(t.Settle), start+int64(length))
}

// spanLimit is like LimitAt for a span that begins between from and to, under other
// shapes: policies count from one settle time before the window that began last, by
// any clock, until the span begins.
func (t *Timeline) spanLimit(length time.Duration, from, to int64) (permits int64, ok bool) {
	w := quota.WindowAt(length, from-int64(t.Slack))
	return t.mostIn(length, w.Start()-int64(t.Settle), to)
}

// mostIn returns the largest total of the policies in force at any time in [from,
// to). ok is as in LimitAt.
func (t *Timeline) mostIn(length time.Duration, from, to int64) (permits int64, ok bool) {
	for _, limits := range t.within(from, to) {
		total, limited := totalOf(limits, length)
		if !limited {
			return 0, false
		}
		permits, ok = max(permits, total), true
	}
	return permits, ok
}

// leastIn returns the smallest total of the policies in force at any time in [from, to). ok
// is false if none of them sets a limit of that length.
func (t *Timeline) leastIn(length time.Duration, from, to int64) (permits int64, ok bool) {
	permits = math.MaxInt64
	for _, limits := range t.within(from, to) {
		if total, limited := totalOf(limits, length); limited {
			permits, ok = min(permits, total), true
		}
	}
	return permits, ok
}

// within returns the limits of the policies that may be in force at any time in [from, to).
func (t *Timeline) within(from, to int64) (some [][]quota.Limit) {
	for i, c := range t.Changes {
		if i > 0 && c.Sent >= to {
			break
		}
		if t.replaced(i) > from {
			some = append(some, c.Limits)
		}
	}
	return some
}

// totalOf returns the permits of a window of that length. The judge reads limits by itself,
// and shares nothing with the limiter that it judges.
func totalOf(limits []quota.Limit, length time.Duration) (permits int64, limited bool) {
	for _, l := range limits {
		if l.Window == length {
			return l.Permits, true
		}
	}
	return 0, false
}

// Lengths returns the window lengths that any policy limits, shortest first.
func (t *Timeline) Lengths() []time.Duration {
	var lists [][]quota.Limit
	for _, c := range t.Changes {
		lists = append(lists, c.Limits)
	}
	return Lengths(lists...)
}

// replaced returns when the i-th policy had certainly been replaced.
func (t *Timeline) replaced(i int) int64 {
	for _, next := range t.Changes[i+1:] {
		if next.Acked != Never {
			return next.Acked
		}
	}
	return Never
}

// Lengths returns the window lengths of all the limits, each once, shortest
// first.
func Lengths(lists ...[]quota.Limit) []time.Duration {
	var lengths []time.Duration
	for _, l := range slices.Concat(lists...) {
		lengths = append(lengths, l.Window)
	}
	slices.Sort(lengths)
	return slices.Compact(lengths)
}

// Shortest returns the limit with the shortest window. There must be one.
func Shortest(limits []quota.Limit) quota.Limit {
	return slices.MinFunc(limits, func(a, b quota.Limit) int { return cmp.Compare(a.Window, b.Window) })
}

// CheckCountable reports whether permits that tell the window of the shortest
// limit can be counted by every other window too: all limits need the same
// shortest window, and every other window must be a multiple of it.
func CheckCountable(lists ...[]quota.Limit) error {
	lengths := Lengths(lists...)
	for _, limits := range lists {
		if w := Shortest(limits).Window; w != lengths[0] {
			return fmt.Errorf("the shortest window is %v in one set of limits and %v in another: permits tell their shortest window only, so give all sets the same one", lengths[0], w)
		}
	}
	for _, w := range lengths[1:] {
		if w%lengths[0] != 0 {
			return fmt.Errorf("window %v is not a multiple of the shortest window %v: permits tell their shortest window only, so use a multiple such as %v", w, lengths[0], (w/lengths[0]+1)*lengths[0])
		}
	}
	return nil
}

// Presence is how many instances of a fleet were active over time, in order.
// The zero Presence is none.
type Presence struct {
	samples []sample
}

type sample struct {
	at     int64
	active int
}

// Record says that so many instances were active at the instant at, which must
// not be before the one recorded last. An instance becomes active only as a
// window starts, so a rise is dated back to the start of the window of the
// given length.
func (p *Presence) Record(at int64, active int, length time.Duration) {
	if n := len(p.samples); n > 0 {
		last := p.samples[n-1]
		if last.active == active {
			return
		}
		if active > last.active {
			at = max(last.at, quota.WindowAt(length, at).Start())
		}
	}
	p.samples = append(p.samples, sample{at, active})
}

// Least returns the smallest number that was active at any time in [start,
// end). Between two records the earlier one holds.
func (p *Presence) Least(start, end int64) int {
	active := []int{0} // at the start, and after each change until the end
	for _, s := range p.samples {
		if s.at <= start {
			active[0] = s.active
		} else if s.at < end {
			active = append(active, s.active)
		}
	}
	return slices.Min(active)
}
