package load

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Shape is over which spans of time limits count that do not count in aligned
// windows, and how their permits were counted.
type Shape struct {
	// Kind is quota.ShapeSliding or quota.ShapeBucket.
	Kind quota.Shape
	// Cell is the length of the cells of time by which permits are counted, and of
	// slots: a whole part of the shortest window. A permit is in the cell of the
	// instant that it tells, the beginning of the slot in which it was issued.
	Cell time.Duration
	// Burst is the policy's, under quota.ShapeBucket.
	Burst int64
	// Transit is the policy's guard: the time that a call may take to the provider.
	Transit time.Duration
	// Crowd is how many instances may have had shares at one time, at most.
	Crowd int
	// Equal says that their shares are equal, but for remainders.
	Equal bool
}

// atOnce is how many permits the instances may issue at one instant under a total:
// the sum of their bursts. Each is the policy's burst in proportion to the share,
// rounded down, and at least one permit. Equal shares sum to the burst or to the
// number of instances, whichever is more; otherwise each instance may add one.
func (s *Shape) atOnce(total int64) int64 {
	burst, crowd := s.Burst, int64(s.Crowd)
	switch {
	case burst <= 0 || burst >= total:
		return total
	case s.Equal:
		return min(total, max(burst, crowd))
	default:
		return min(total, burst+crowd)
	}
}

// unit is the length of what Run.Counts are by.
func (r *Run) unit(shortest time.Duration) time.Duration {
	if r.Shape != nil {
		return r.Shape.Cell
	}
	return shortest
}

// settling reports whether a limit change is taking effect in a window. Shapes
// hold growth back for a window's length more, and what clocks may err.
func (r *Run) settling(w quota.Window) bool {
	if r.Timeline.Settling(w.Length, w.Start()) {
		return true
	}
	if r.Shape == nil {
		return false
	}
	reach := protocol.ReachOf(w.Length, r.Shape.Transit, r.Timeline.Slack)
	return r.Timeline.Settling(w.Length, w.Start()-int64(reach))
}

// allowed is how many permits an aligned window may hold beyond its limit's total
// by the shape; 0 where that is no more than the total.
func (r *Run) allowed(length time.Duration, total int64) int64 {
	s := r.Shape
	if s == nil || s.Kind != quota.ShapeBucket {
		return 0
	}
	part := int64(length / s.Cell) // and the slot in which the last permit was issued
	return s.atOnce(total) + total*(part+1)/part
}
