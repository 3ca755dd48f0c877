package window

// schedule says when the permits of one account may be issued, by one shape. A permit is
// issued when every schedule of its account allows it.
//
// The order of calls: set, whenever the ledger moves on, then any of the others.
type schedule interface {
	// set brings the schedule to the ledger's present, and to the account's window and bound.
	set(a *account, l *ledger)
	// left returns how many permits may be issued now.
	left(a *account, l *ledger) int64
	// when returns the earliest instant, not before now, at which n permits may be issued
	// together if nothing else is. ok is false if that is not under this plan; the instant is
	// then the earliest at which another plan may allow them.
	when(a *account, n int64, l *ledger) (at int64, ok bool)
	// take counts n permits that were issued at an instant, since the latest set.
	take(n, at int64)
	// undo takes n permits out again that were issued at an instant, if they count still.
	undo(n, at, now int64)
	// slotEnd returns until when permits that are issued from now on need not be told apart.
	slotEnd(now int64) int64
	// part is the most permits of a debt that are paid together.
	part(a *account) int64
	// spread delays permits that are due and that nobody asked for. It leaves need of them.
	spread(a *account, need, now int64)
	// copyTo returns a copy that shares nothing with the schedule. It uses the memory of the
	// other one if that is of the same shape.
	copyTo(other schedule) schedule
}

// shapes is how many shapes there are.
const shapes = 4

// fresh are the schedules of an account before their first set, in the order of account.by.
var fresh = [shapes]schedule{aligned{}, &ring{span: spanSlots, slot: unused}, &bucket{empty: unused}, &line{}}

// reshape keeps the schedules that bind, begins those that begin to, and drops others.
func (l *ledger) reshape(a *account) {
	s := &l.plan.Shape
	for i, binds := range [shapes]bool{!s.Unaligned, s.Sliding, s.Bucket, l.plan.Pacing.Even && a.bound != Unbounded} {
		switch {
		case !binds:
			a.by[i] = nil
		case a.by[i] == nil:
			a.by[i] = fresh[i].copyTo(nil)
		}
	}
	a.set(l)
}

// schedules goes over those that bind.
func (a *account) schedules(yield func(schedule) bool) {
	for _, s := range a.by {
		if s != nil && !yield(s) {
			return
		}
	}
}

// set brings the account's schedules to the ledger's present.
func (a *account) set(l *ledger) {
	for s := range a.schedules {
		s.set(a, l)
	}
}

// neutral counts nothing and bounds nothing. Schedules embed it.
type neutral struct{}

func (neutral) set(*account, *ledger)         {}
func (neutral) take(_, _ int64)               {}
func (neutral) undo(_, _, _ int64)            {}
func (neutral) slotEnd(int64) int64           { return Forever }
func (neutral) part(*account) int64           { return Unbounded }
func (neutral) spread(_ *account, _, _ int64) {}

// copied copies a schedule to another one if that is of the same type, or else to a new one.
func copied[T any](from *T, to schedule) *T {
	t, ok := any(to).(*T)
	if !ok {
		t = new(T)
	}
	*t = *from
	return t
}
