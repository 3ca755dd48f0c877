// Package load is the arithmetic of a load generator for a fleet that shares a
// limit: when calls arrive, how they spread over instances, how permits are
// counted by window, and whether the limit held.
//
// Nothing in it does I/O or starts a goroutine, and every instant is a
// parameter, in nanoseconds since the Unix epoch. It knows the limiter only by
// the permits that came out, and when: counts and clock are its own, so a fault in
// the limiter's counters, or in its clock, cannot hide itself here.
package load

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Run is what was observed of a fleet.
type Run struct {
	// Counts are by windows of the shortest length, or by cells of the shape, in
	// order.
	Counts []Count
	// Keys are the counts of each key, in windows of KeyLimit, which each of them has; none:
	// calls have no keys.
	Keys     [][]Count
	KeyLimit quota.Limit
	// Shape is nil where limits count in aligned windows.
	Shape *Shape
	// Arrivals are requests by windows of the provider's clock; nil without a
	// provider.
	Arrivals *Arrivals
	// Own is what the generator's own clock says.
	Own Own
	// Presence is how many instances were active, as they say.
	Presence Presence
	Timeline Timeline
	// Fleet is how many instances there should be.
	Fleet int
	// Serving is how many instances served, as the generator knows: one that falls silent by
	// itself still serves. Servers is how many should; 0: that does not matter.
	Serving Presence
	Servers int64
	// Parts are those of the instances, where each has a part of the total that is its own;
	// nil: what one does not ask for goes to others.
	Parts []Part
	// LeastUse is the part of what is due that has to come for Held, 0 to 1.
	LeastUse float64
	// Active is the instant from which the whole fleet was active.
	Active int64
	// Start and End bound the measured time. Both Never if it did not begin.
	Start, End int64
}

// Judge returns a run's windows in order of start, their summary and the verdict, which
// has two halves. That no limit was exceeded is judged of every window for which a permit
// was issued, also outside the measured time; of every span of time, where limits have a
// shape; and of each permit by the generator's own clock. That the limit was used is judged
// of the whole windows. A violation makes NotHeld, else a fleet that issued nothing that was
// due Unused, else missing evidence Unknown, else too little use Underused.
// Summary fields that do not follow from counts are left zero.
func Judge(r Run) ([]Window, Summary, Verdict) {
	var (
		windows = []Window{} // not nil: an empty list in JSON
		summary Summary
		lengths = r.Timeline.Lengths()
	)
	if r.Arrivals != nil {
		a := r.Arrivals
		summary.Arrivals = &ArrivalSummary{Promised: a.Promised, Judged: a.Promised && a.Unjudged == "", Unjudged: a.Unjudged}
	}
	for i, length := range lengths {
		some := r.windows(length, lengths)
		if summary.add(some, i == 0); i == 0 {
			summary.Used = r.use(some, lengths)
			one := r
			one.Parts, one.Servers = nil, 0
			summary.OneLimiter = one.use(some, lengths)
			summary.OwnClock.Excess = r.excess(some)
		}
		windows = append(windows, some...)
	}
	slices.SortStableFunc(windows, func(a, b Window) int { return a.Start.Compare(b.Start) })
	for _, c := range r.Counts {
		summary.IssuedTotal += c.Issued
	}
	summary.Keys = r.keys()
	summary.Spans = r.spans(lengths)
	r.own(&summary.OwnClock, summary.IssuedTotal)
	summary.PeakToMean10ms, summary.PeakToMean50ms, summary.MaxSpanRatio = r.peakToMean(1), r.peakToMean(5), r.spanRatio()
	summary.Unjudged = r.unjudged(&summary)
	a := summary.Arrivals
	switch {
	case summary.OverLimitWindows > 0,
		summary.Keys != nil && summary.Keys.OverLimitWindows > 0,
		summary.Spans != nil && summary.Spans.Over > 0,
		a != nil && a.Judged && a.OverLimitWindows > 0,
		r.Own.Unjudged == "" && summary.OwnClock.Outside > 0:
		return windows, summary, NotHeld
	case summary.Used.Due > 0 && summary.Used.Came == 0:
		return windows, summary, Unused
	case len(summary.Unjudged) > 0:
		return windows, summary, Unknown
	case summary.Used.Ratio < r.LeastUse:
		return windows, summary, Underused
	}
	return windows, summary, Held
}

// windows returns the windows of one length that are to be reported. Those
// without a limit of that length are left out.
func (r *Run) windows(length time.Duration, lengths []time.Duration) []Window {
	shortest := lengths[0]
	sums := sum(r.Counts, length, r.unit())
	var arrived map[int64]Count
	if r.Arrivals != nil {
		arrived = sum(r.Arrivals.Counts[length], length, length)
	}
	var windows []Window
	for _, k := range r.indexes(length, sums, arrived) {
		w := quota.Window{Length: length, Index: k}
		limit, limited := r.Timeline.LimitAt(length, w.Start())
		if !limited {
			continue
		}
		windows = append(windows, Window{
			Start:     time.Unix(0, w.Start()).UTC(),
			Length:    nameOf(length, lengths),
			Limit:     limit,
			Offered:   sums[k].Offered,
			Issued:    sums[k].Issued,
			Doubtful:  sums[k].Doubtful,
			Instances: r.Presence.Least(w.Start(), w.End()),
			Allowed:   r.allowed(length, limit),
			Settling:  r.settling(w),
			Whole:     r.wholeFrom(length, shortest) <= w.Start() && w.End() <= r.End && r.End != Never,
		})
		if n := arrived[k].Issued; r.Arrivals != nil {
			windows[len(windows)-1].Arrived, windows[len(windows)-1].Late = &n, arrived[k].Offered
		}
	}
	return windows
}

// unit is by what Counts count: windows of the shortest length, or cells of the shape.
func (r *Run) unit() time.Duration {
	if r.Shape != nil {
		return r.Shape.Cell
	}
	return r.Timeline.Lengths()[0]
}

// lookback is for how long a limit that was replaced may still hold windows of a length
// back: one settle time, one window and the slack. Shapes hold growth back for a window's
// length more, the transit, two slots, and twice what clocks may err.
func (r *Run) lookback(length time.Duration) time.Duration {
	back := r.Timeline.Settle + length + r.Timeline.Slack
	if r.Shape != nil {
		back += length + r.Shape.Transit + 2*r.Shape.Cell + 2*r.Timeline.Slack
	}
	return back
}

// settling reports whether a limit change is taking effect in a window: from when it
// was sent, until the lookback after it was committed.
func (r *Run) settling(w quota.Window) bool {
	back := r.lookback(w.Length)
	return slices.ContainsFunc(r.Timeline.Changes[min(1, len(r.Timeline.Changes)):], func(c Change) bool {
		return c.Sent < w.End() && (c.Acked == Never || w.Start() < c.Acked+int64(back))
	})
}

// wholeFrom returns the instant from which windows of a length count as whole. A longer
// fixed window may begin with the fleet's first active window, before the measured
// time: instances become active only at a start of every length.
func (r *Run) wholeFrom(length, shortest time.Duration) int64 {
	if length == shortest || r.Start == Never || r.Shape != nil {
		return r.Start
	}
	return quota.WindowAt(shortest, r.Active).Start()
}

// sum adds counts by a unit up into windows of a multiple of its length.
func sum(counts []Count, length, unit time.Duration) map[int64]Count {
	sums := map[int64]Count{}
	for _, c := range counts {
		c.Index = floorDiv(c.Index*int64(unit), int64(length))
		sums[c.Index] = sums[c.Index].and(c)
	}
	return sums
}

// indexes returns the windows to report, in order: those with a permit or an
// arrival, and those that touch the measured time.
func (r *Run) indexes(length time.Duration, counts ...map[int64]Count) []int64 {
	var list []int64
	for _, sums := range counts {
		for k, c := range sums {
			if c.Issued > 0 {
				list = append(list, k)
			}
		}
	}
	if r.Start != Never && r.Start < r.End {
		for k := floorDiv(r.Start, int64(length)); k*int64(length) < r.End; k++ {
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// add takes the windows of one limit into the summary.
func (s *Summary) add(windows []Window, shortest bool) {
	for i := range windows {
		w := &windows[i]
		if s.Arrivals != nil {
			s.Arrivals.add(w, shortest)
		}
		if w.Over() {
			s.OverLimitWindows++
		}
		s.MaxOverRatio = max(s.MaxOverRatio, ratio(w.certain(), max(w.Most(), 1)))
		if w.Whole && shortest {
			s.Windows++
		}
	}
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
