package window

// aligned is the schedule of aligned windows: all of a share may be issued at once. The
// span itself counts the permits.
type aligned struct{ neutral }

func (aligned) left(s *span) int64 { return s.bound - s.used }

func (aligned) part(s *span) int64 { return s.bound - s.used }

// when says not before the window's end where the window does not hold n more permits: only
// a revision may raise its bound.
func (w aligned) when(s *span, n int64, l *ledger) (at int64, ok bool) {
	if n > w.left(s) {
		return s.window.End() - l.plan.Offset, false
	}
	return l.now, true
}

func (w aligned) copyTo(schedule) schedule { return w }
