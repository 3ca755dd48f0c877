package load

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Use is the second half of the verdict: the permits that were due in the whole windows of
// the shortest limit, and those of them that came. Due in a window is the smallest of
//
//   - the calls that the generator made in it, of each instance no more than its part of
//     the total where the policy gives that to nobody else;
//   - the smallest total in force about it, while a change takes effect;
//   - what the provider takes, if it refuses calls,
//   - the calls for each key up to its limit, if calls have keys,
//
// and of that the part of the instances that served: those that had been active once, and
// that the generator had neither killed nor replaced. In the windows of a longer limit no
// more is due together than that limit leaves to them.
type Use struct {
	Due  int64 `json:"due"`
	Came int64 `json:"came"`
	// Ratio is Came over Due; 0 where nothing was due.
	Ratio float64 `json:"ratio"`
	// Excused were not due only because their instances did not serve.
	Excused int64 `json:"excused,omitempty"`
	// Worst is the window, of the longest limit, of which the smallest part came; nil where
	// nothing was due.
	Worst *WindowUse `json:"worst,omitempty"`
}

// WindowUse is the use of one window, or of its part in the measured time.
type WindowUse struct {
	Start time.Time `json:"start"`
	Due   int64     `json:"due"`
	Came  int64     `json:"came"`
}

// Ratio is Came over Due.
func (w *WindowUse) Ratio() float64 { return ratio(w.Came, w.Due) }

// use is that of some windows of the shortest limit. A call that waited was offered in one
// window and got its permit in the next one, which may so have more permits than calls.
func (r *Run) use(windows []Window, lengths []time.Duration) (u Use) {
	var all []WindowUse
	for i := range windows {
		w := &windows[i]
		if !w.Whole {
			continue
		}
		start := w.Start.UnixNano()
		possible := r.attainable(max(w.Offered, w.Issued), min(r.room(start, start, lengths[0]), r.keysTake(start, lengths[0])))
		due := possible
		if serving := min(int64(r.Serving.Least(start, start+int64(lengths[0]))), r.Servers); serving < r.Servers {
			due = int64(float64(possible) * float64(serving) / float64(r.Servers))
		}
		u.Excused += possible - due
		all = append(all, WindowUse{w.Start, due, w.certain()})
	}
	for _, length := range lengths[1:] {
		all = r.together(all, length)
	}
	for i := range all {
		w := &all[i]
		w.Came = min(w.Came, w.Due)
		u.Due, u.Came = u.Due+w.Due, u.Came+w.Came
		if w.Due > 0 && (u.Worst == nil || w.Ratio() < u.Worst.Ratio()) {
			u.Worst = w
		}
	}
	u.Ratio = ratio(u.Came, u.Due)
	return u
}

// together adds up the parts of each window of a longer limit, which bounds them.
func (r *Run) together(parts []WindowUse, length time.Duration) (all []WindowUse) {
	for _, p := range parts {
		if n := len(all); n > 0 && quota.WindowAt(length, all[n-1].Start.UnixNano()) == quota.WindowAt(length, p.Start.UnixNano()) {
			all[n-1].Due, all[n-1].Came = all[n-1].Due+p.Due, all[n-1].Came+p.Came
			continue
		}
		all = append(all, p)
	}
	for i := range all {
		start := all[i].Start.UnixNano()
		all[i].Due = min(all[i].Due, r.room(quota.WindowAt(length, start).Start(), start, length))
	}
	return all
}

// Part is one instance's part of all calls, and of the total.
type Part struct{ Calls, Total float64 }

// attainable is how many of so many calls can get permits of a total.
func (r *Run) attainable(calls, total int64) int64 {
	if r.Parts == nil {
		return min(calls, total)
	}
	sum := 0.0
	for _, p := range r.Parts {
		sum += min(p.Calls*float64(calls), p.Total*float64(total))
	}
	return int64(sum + 0.001) // the parts sum to 1 to within rounding
}

// room is how many permits of the window of a length that starts at start are left at an
// instant of it.
func (r *Run) room(start, at int64, length time.Duration) int64 {
	least, limited := r.Timeline.leastIn(length, start-int64(r.lookback(length)), start+int64(length))
	if !limited {
		return math.MaxInt64
	}
	return max(0, least-r.issued(start, at))
}

// issued counts the permits of a span of whole windows of the shortest limit.
func (r *Run) issued(from, to int64) (n int64) {
	unit := int64(r.unit())
	for _, c := range r.Counts {
		if at := c.Index * unit; from <= at && at < to {
			n += c.certain()
		}
	}
	return n
}
