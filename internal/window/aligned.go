package window

// aligned is the schedule of aligned windows: all of a share may be issued at once. The
// account itself counts the permits.
type aligned struct{ neutral }

func (aligned) left(a *account, _ *ledger) int64 { return a.bound - a.used }

func (aligned) part(a *account) int64 { return a.bound - a.used }

// when says not before the window's end where the window does not hold n more permits: only
// a revision may raise its bound.
func (w aligned) when(a *account, n int64, l *ledger) (at int64, ok bool) {
	if n > w.left(a, l) {
		return a.window.End() - l.plan.Offset, false
	}
	return l.now, true
}

func (w aligned) copyTo(schedule) schedule { return w }
