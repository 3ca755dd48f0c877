package load

import "time"

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
