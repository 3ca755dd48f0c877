package shape

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// Unbounded is the bound of a window that no limit constrains.
const Unbounded = int64(math.MaxInt64)

// Count is what is counted of one limit in one window.
type Count struct {
	Window quota.Window
	Bound  int64 // permits that may be issued in the window, borrowed ones included; Unbounded while no limit binds
	Used   int64 // permits issued in it, or lent to others
}

// Terms is what a plan says of one limit, as of an instant.
type Terms struct {
	Now int64 // the instant: monotonic
	// Offset is corrected wall time minus monotonic time, and Guard the time at either edge of a
	// window in which nothing is issued, both in nanoseconds.
	Offset, Guard int64
	Burst         int64 // permits that a bucket keeps at most
	Owes          bool  // a debt is paid of the limit's permits
	Shape
	Pacing
}

// Present is a monotonic instant, and how many permits were taken until the segment's edge and are not
// booked.
type Present struct{ Now, Edge, Taken int64 }

// DebtParts is the least number of parts in which a share that comes bit by bit pays a debt.
// More parts need more wake-ups; with fewer, permits are paid later than they could be.
const DebtParts = 8

// Schedules say when the permits of one limit may be issued, by each shape that binds: a permit is issued when
// all of them allow it. A nil *Schedules is the one of aligned windows, by which all of a bound may be issued at
// once; the Count itself counts the permits then.
//
// The order of calls: Reshape for each plan and Set as time goes on within it, then any of the others. Its
// owner keeps calls apart.
type Schedules struct {
	by [shapes]schedule // nil for a shape that does not bind
}

// Reshape returns the schedules by other terms: of s it keeps those that bind, and it begins those that begin to.
func (s *Schedules) Reshape(c *Count, t Terms) *Schedules {
	binds := [shapes]bool{!t.Unaligned, t.Sliding, t.Bucket, t.Even && c.Bound != Unbounded}
	if binds == [shapes]bool{true} {
		return nil
	}
	if s == nil {
		s = &Schedules{}
	}
	for i, binds := range binds {
		switch {
		case !binds:
			s.by[i] = nil
		case s.by[i] == nil:
			s.by[i] = fresh(i)
		}
	}
	s.Set(c, t)
	return s
}

// Set brings the schedules to the terms' instant, and to the count's window and bound.
func (s *Schedules) Set(c *Count, t Terms) {
	for by := range s.all {
		by.set(c, t)
	}
}

// Left returns how many permits may be issued now.
func (s *Schedules) Left(c *Count) int64 {
	if s == nil {
		return c.Bound - c.Used
	}
	left := c.Bound
	for by := range s.all {
		left = min(left, by.left(c))
	}
	return left
}

// Unpaced returns how many permits may be issued now if they need not be due by pacing.
func (s *Schedules) Unpaced(c *Count) int64 {
	if s == nil {
		return c.Bound - c.Used
	}
	left := c.Bound
	for by := range s.all {
		if _, paces := by.(*line); !paces {
			left = min(left, by.left(c))
		}
	}
	return left
}

// When returns a monotonic instant before which n permits more are surely not issued, together or not,
// unless the bound grows. If they can be issued together under this plan, it is the earliest instant at
// which they can. It leaves the end of an aligned window to the caller.
func (s *Schedules) When(c *Count, n int64, as Present) int64 {
	at := as.Now
	for by := range s.all {
		at = max(at, by.when(c, n, as))
	}
	return at
}

// Take counts n permits that were issued at a monotonic instant, since the latest Set.
func (s *Schedules) Take(n, at int64) {
	for by := range s.all {
		by.take(n, at)
	}
}

// Undo takes n permits out again that were issued at a monotonic instant, where they count still.
func (s *Schedules) Undo(n, at, now int64) {
	for by := range s.all {
		by.undo(n, at, now)
	}
}

// SlotEnd returns until when permits that are issued from now on need not be told apart from each
// other: a monotonic instant; clock.Forever where only aligned windows bind.
func (s *Schedules) SlotEnd(now int64) int64 {
	end := clock.Forever
	for by := range s.all {
		end = min(end, by.slotEnd(now))
	}
	return end
}

// Part returns the most permits of a debt that are paid together.
func (s *Schedules) Part(c *Count) int64 {
	if s == nil {
		return c.Bound - c.Used
	}
	part := Unbounded
	for by := range s.all {
		part = min(part, by.part(c))
	}
	return part
}

// Spread delays permits that are due and that nobody asked for. It leaves need of them.
func (s *Schedules) Spread(c *Count, need, now int64) {
	for by := range s.all {
		by.spread(c, need, now)
	}
}

// Counted returns how many permits count against the bound of a sliding window; false where none binds.
func (s *Schedules) Counted() (n int64, sliding bool) {
	for by := range s.all {
		if r, ok := by.(*ring); ok {
			return r.sum, true
		}
	}
	return 0, false
}

// Due returns the monotonic instant at which n permits of the window are due by pacing at the earliest, those
// included that were issued before. At the terms' instant it leaves need together at most.
func (s *Schedules) Due(c *Count, t Terms, n, need int64) int64 {
	l := newLine(c, t, c.Used > 0)
	for by := range s.all {
		if now, ok := by.(*line); ok && now.window == c.Window && now.share == c.Bound {
			l = *now
		}
	}
	l.spread(c, need, t.Now)
	return l.at(n)
}

// all goes over the schedules that bind.
func (s *Schedules) all(yield func(schedule) bool) {
	if s == nil {
		return
	}
	for _, by := range s.by {
		if by != nil && !yield(by) {
			return
		}
	}
}

// schedule says when the permits of one limit may be issued, by one shape. Its methods are those of Schedules.
type schedule interface {
	set(c *Count, t Terms)
	left(c *Count) int64
	when(c *Count, n int64, as Present) int64
	take(n, at int64)
	undo(n, at, now int64)
	slotEnd(now int64) int64
	part(c *Count) int64
	spread(c *Count, need, now int64)
}

// shapes is how many shapes there are.
const shapes = 4

// fresh returns a schedule before its first set: that at a place in Schedules.by.
func fresh(place int) schedule {
	switch place {
	case 0:
		return aligned{}
	case 1:
		return &ring{span: spanSlots, slot: unused}
	case 2:
		return &bucket{empty: unused}
	}
	return &line{}
}

// neutral counts nothing and bounds nothing. Schedules embed it.
type neutral struct{}

func (neutral) set(*Count, Terms)           {}
func (neutral) take(_, _ int64)             {}
func (neutral) undo(_, _, _ int64)          {}
func (neutral) slotEnd(int64) int64         { return clock.Forever }
func (neutral) part(*Count) int64           { return Unbounded }
func (neutral) spread(_ *Count, _, _ int64) {}
