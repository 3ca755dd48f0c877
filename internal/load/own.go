package load

import (
	"fmt"
	"time"
)

// Own is what the load generator's own clock says of the permits. Counts by the
// window that a permit tells are blind to a limiter whose clock is wrong.
type Own struct {
	// Came are permits by cells of time of the length Cell, in order, with those
	// that were held up as Offered.
	Came []Count
	Cell time.Duration
	// Misplaced are permits outside the window that they tell, by that window.
	Misplaced []Count
	// Worst is the furthest that one was outside.
	Worst time.Duration
	// Tolerance is how far limiters' clocks may be from the generator's.
	Tolerance time.Duration
	// Unjudged is why the clock cannot tell; empty: it can.
	Unjudged string
}

// The parts of all permits, and of all requests, that may be excused as late. With more the
// verdict is Unknown: those that are excused could hide as many too many in a window.
const (
	// mostHeldUp: only a caller that is held up just as a window ends is excused. That is
	// far below a tenth of a window's permits, also on a busy machine.
	mostHeldUp = 0.1
	// mostLate: a slot is short, and a request waits for the network and for the provider's
	// process too. So a busy machine holds up more of them, but not every third.
	mostLate = 0.3
)

// OwnSummary is what comes of Own. Spans of time are not judged by it: those permits in
// one that were not held up came in their windows, or are Outside. So they are no more
// than the windows that the span touches hold, which are judged.
type OwnSummary struct {
	ToleranceNs int64 `json:"tolerance_ns"`
	// Outside are permits that came outside the window that they tell, by more than
	// the tolerance; WorstNs is by how much more, at most.
	Outside int64 `json:"outside"`
	WorstNs int64 `json:"worst_ns,omitempty"`
	// Unplaced are permits of which the clock cannot tell: those that were held up
	// between issue and caller, and what a killed process had not noted yet.
	Unplaced int64 `json:"unplaced"`
	// Excess is by how much a window would exceed what it may hold, at most, if permits
	// that were held up were issued only as they came.
	Excess int64 `json:"excess,omitempty"`
}

// own fills in what the clock says of so many permits.
func (r *Run) own(s *OwnSummary, issued int64) {
	s.ToleranceNs, s.WorstNs, s.Unplaced = int64(r.Own.Tolerance), int64(r.Own.Worst), issued
	for _, c := range r.Own.Came {
		s.Unplaced -= c.Issued - c.Offered
	}
	for _, c := range r.Own.Misplaced {
		s.Outside += c.Issued
	}
}

func (r *Run) mostHeldUp() float64 {
	if r.Shape != nil {
		return mostLate
	}
	return mostHeldUp
}

// excess is that of the windows of the shortest length: what each holds by its permits'
// labels, and those that were held up until it.
func (r *Run) excess(windows []Window) (most int64) {
	if r.Own.Cell == 0 {
		return 0
	}
	late := sum(r.Own.Came, r.Timeline.Lengths()[0], r.Own.Cell)
	for i := range windows {
		w := &windows[i]
		k := floorDiv(w.Start.UnixNano(), int64(r.Timeline.Lengths()[0]))
		if held := late[k].Offered; held > 0 {
			most = max(most, w.certain()+held-w.Most())
		}
	}
	return most
}

// unjudged says what of a run could not be judged; nil if enough was.
func (r *Run) unjudged(s *Summary) (reasons []string) {
	if s.Windows == 0 {
		reasons = append(reasons, "no whole window was seen")
	} else if s.Used.Due == 0 {
		reasons = append(reasons, "nothing was due in the whole windows")
	}
	if r.Own.Unjudged != "" {
		reasons = append(reasons, r.Own.Unjudged)
	} else if o := &s.OwnClock; float64(o.Unplaced) > r.mostHeldUp()*float64(s.IssuedTotal) {
		reasons = append(reasons, fmt.Sprintf("%d of %d permits were held up, so that they cannot be placed; issued as they came, a window has up to %d more than it may",
			o.Unplaced, s.IssuedTotal, o.Excess))
	}
	if a := s.Arrivals; a != nil && a.Promised {
		if a.Unjudged != "" {
			reasons = append(reasons, a.Unjudged)
		} else if float64(a.Late) > mostLate*float64(a.Total) {
			reasons = append(reasons, fmt.Sprintf("%d of %d requests were late, so that the provider's windows cannot be judged; with them they had up to %.4f of the limit",
				a.Late, a.Total, a.MaxLateRatio))
		}
	}
	return reasons
}

// Place says where a permit came to its caller, by the load generator's clock,
// beside the window that it tells.
type Place int

// The places of a permit.
const (
	// Inside: it came in its window.
	Inside Place = iota
	// HeldUp: it was asked for before its window ended and came after that. The
	// machine may have held the caller up, or the limiter may have issued it late:
	// nobody can tell from outside.
	HeldUp
	// Outside: it came before its window began, or was asked for after it had ended.
	Outside
)

// Placing is how permits are placed.
type Placing struct {
	// Length is how long the time lasts in which a permit may be issued: the window
	// of the shortest limit, or a slot of other shapes.
	Length time.Duration `json:"length"`
	// Aligned says that permits are of windows that begin at multiples of their
	// length. Slots begin where each instance's clock says.
	Aligned bool `json:"aligned"`
	// Valid is how long after its start a permit ends, or less than Slack longer.
	Valid time.Duration `json:"valid"`
	Slack time.Duration `json:"slack,omitempty"`
	// Tolerance is how far the limiter's clock may be from the generator's.
	Tolerance time.Duration `json:"tolerance"`
}

// Place returns the place of a permit that tells the window from start to until. The
// generator's clock was read before the permit was asked for and after it came, so
// it was issued between the two. A permit whose label is no window is Outside.
// beyond is how far a permit with a window lies outside.
func (p Placing) Place(start, until, before, after int64) (place Place, beyond time.Duration) {
	first, end := start-int64(p.Tolerance), start+int64(p.Length+p.Tolerance) // [first, end)
	longer := until - start - int64(p.Valid)
	switch {
	case p.Aligned && start%int64(p.Length) != 0 || longer < 0 || longer > max(0, int64(p.Slack)-1):
		return Outside, 0
	case after < before: // the clock was set back meanwhile
		return HeldUp, 0
	case after < first:
		return Outside, time.Duration(first - after)
	case before >= end:
		return Outside, time.Duration(before - end)
	case after >= end:
		return HeldUp, 0
	}
	return Inside, 0
}
