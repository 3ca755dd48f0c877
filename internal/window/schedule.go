package window

import "github.com/quotient-limiter/quotient/internal/clock"

// schedule says when the permits of one span may be issued, by one shape. A permit is
// issued when every schedule of its span allows it.
//
// The order of calls: set, whenever the ledger moves on, then any of the others.
type schedule interface {
	// set brings the schedule to the ledger's present, and to the span's window and bound.
	set(s *span, l *ledger)
	// left returns how many permits may be issued now.
	left(s *span) int64
	// when returns an instant before which n permits more are surely not issued, together or not,
	// unless the span's bound grows. If they can be issued together under this plan, it is the
	// earliest instant at which they can.
	when(s *span, n int64, as present) int64
	// take counts n permits that were issued at an instant, since the latest set.
	take(n, at int64)
	// undo takes n permits out again that were issued at an instant, if they count still.
	undo(n, at, now int64)
	// slotEnd returns until when permits that are issued from now on need not be told apart.
	slotEnd(now int64) int64
	// part is the most permits of a debt that are paid together.
	part(s *span) int64
	// spread delays permits that are due and that nobody asked for. It leaves need of them.
	spread(s *span, need, now int64)
}

// present is an instant, and how many permits were taken until the segment's edge and are not
// booked.
type present struct{ now, edge, taken int64 }

// shapes is how many shapes there are.
const shapes = 4

// fresh returns a schedule before its first set: that at a place in span.by.
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

// reshape keeps the schedules that bind, begins those that begin to, and drops others. Where only
// aligned windows bind there are none.
func (l *ledger) reshape(s *span) {
	shape := &l.plan.Shape
	binds := [shapes]bool{!shape.Unaligned, shape.Sliding, shape.Bucket, l.plan.Pacing.Even && s.bound != Unbounded}
	if binds == [shapes]bool{true} { // plain
		s.by = nil
		return
	}
	if s.by == nil {
		s.by = new([shapes]schedule)
	}
	for i, binds := range binds {
		switch {
		case !binds:
			s.by[i] = nil
		case s.by[i] == nil:
			s.by[i] = fresh(i)
		}
	}
	s.set(l)
}

// plain are the schedules of a span that has no others.
var plain = [shapes]schedule{aligned{}}

// schedules goes over those that bind.
func (s *span) schedules(yield func(schedule) bool) {
	all := s.by
	if all == nil {
		all = &plain
	}
	for _, by := range all {
		if by != nil && !yield(by) {
			return
		}
	}
}

// set brings the span's schedules to the ledger's present.
func (s *span) set(l *ledger) {
	for by := range s.schedules {
		by.set(s, l)
	}
}

// neutral counts nothing and bounds nothing. Schedules embed it.
type neutral struct{}

func (neutral) set(*span, *ledger)         {}
func (neutral) take(_, _ int64)            {}
func (neutral) undo(_, _, _ int64)         {}
func (neutral) slotEnd(int64) int64        { return clock.Forever }
func (neutral) part(*span) int64           { return Unbounded }
func (neutral) spread(_ *span, _, _ int64) {}
