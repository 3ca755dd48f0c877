package window

import (
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// ledger is the account of a provider: an Account whose permits may come by a shape. It says how many
// permits may be issued now, and when so many more may be.
//
// The order of calls: adopt when a plan begins, advance as time goes on within
// it, then any of the others.
type ledger struct {
	Account
	plan    *plans.Plan
	now     int64 // as of the latest adopt or advance
	issued  int64 // permits booked since the beginning, but for those lent
	paid    int64 // of issued: what has paid debts
	unended int64 // Usage.Unended
	wanted  shape.Wanted
	ended   Loans // of the windows that ended last
	// overIssued counts permits that were booked though a bound did not allow
	// them, whether pacing did or not. It is checked where permits are booked, not where they are counted out.
	overIssued int64
}

// adopt moves every span to its window by the plan, at the instant now.
func (l *ledger) adopt(p *plans.Plan, now int64) {
	was := l.epoch
	l.plan, l.now = p, max(l.now, now)
	l.begin(&p.Windows, func(w quota.Window) int64 { return l.limit(w).Permits })
	l.dropEnded(func(s *span) int64 { return s.counts(&p.Shape) })
	for i := range l.spans {
		s := &l.spans[i]
		if w := quota.WindowAt(s.Window.Length, l.now+p.Offset); w.Index > s.Window.Index && !l.runs(s) {
			s.enter(w) // only shapes keep it longer than its window
			l.epoch++
		}
		s.by = s.by.Reshape(&s.Count, l.terms(s))
	}
	l.unended += l.adoptBudgets(l.plan.Budgets)
	if len(p.Limits) > 0 {
		l.wanted.Roll(p.Limits[0].Window)
	}
	if l.epoch != was {
		l.endLoans()
	}
}

// counts returns until when a span counts that binds no more, in corrected wall time: to the end of its
// window, or of every span of a shape that holds its permits.
func (s *span) counts(shape *shape.Shape) int64 {
	if shape.Any() {
		return s.Window.End() + 2*int64(s.Window.Length) + shape.Skew
	}
	return s.Window.End()
}

// limit returns the plan's limit for windows as long as w.
func (l *ledger) limit(w quota.Window) *plans.Limit { return l.plan.LimitOf(w) }

// total returns what all instances may issue in windows as long as w.
func (l *ledger) total(w quota.Window) int64 { return l.limit(w).Limit }

// advance brings the ledger to the instant now, within the same plan.
func (l *ledger) advance(now int64) {
	l.now = max(l.now, now)
	for i := range l.spans {
		if s := &l.spans[i]; s.by != nil {
			s.by.Set(&s.Count, l.terms(s))
		}
	}
}

// terms are those of the plan for a span, now.
func (l *ledger) terms(s *span) shape.Terms { return l.plan.Terms(s.Window, l.now, l.debt > 0) }

// budget returns how many permits may be issued now: the least that any span has left; 0 when nothing
// is known to bind, because no knowledge is no share.
func (l *ledger) budget() int64 { return min(l.leftOfShares(), max(0, l.inHand())) }

// unpaced is leftOfShares with the permits that pacing has not released yet. It is negative where a bound has fallen below
// what was issued.
func (l *ledger) unpaced() int64 {
	if l.early || l.plan.Shut {
		return 0
	}
	least := shape.Unbounded
	for s := range l.bounded {
		least = min(least, s.by.Unpaced(&s.Count))
	}
	if least == shape.Unbounded {
		return 0
	}
	return least
}

// when returns the earliest instant, not before now, at which n permits may be issued together under
// this plan if nothing else is. What it says of later plans' time is not so.
func (l *ledger) when(n int64) int64 {
	at := l.now
	for s := range l.bounded {
		at = max(at, s.by.When(&s.Count, n, shape.Present{Now: l.now}))
	}
	return at
}

// next returns how many permits are issued together next, for a caller that wants n.
func (l *ledger) next(n int64) int64 {
	if l.debt > 0 {
		return l.instalment()
	}
	return n
}

// release makes ready what is issued now: permits that were not asked for are spread, and a
// debt is paid. The gate calls it where a segment begins, for the head of its queue. While the
// head's permits are not there, nothing is spread.
func (l *ledger) release(need int64) {
	for n := l.next(need); n <= l.budget(); n = l.next(need) {
		if l.pace(need); l.debt == 0 || n > l.budget() {
			break
		}
		l.pay(n)
	}
}

// pace spreads permits that were due and not asked for along the rest of the window, so
// that they do not come as a burst. It keeps back the most of these: need, the largest
// refused request, a debt's instalment, a tick's permits.
func (l *ledger) pace(need int64) {
	need = max(need, l.wanted.Most(), l.instalment())
	for i := range l.spans {
		s := &l.spans[i]
		s.by.Spread(&s.Count, need, l.now)
	}
}

// grant returns the window of permits that are issued now.
func (l *ledger) grant() queue.Grant {
	if b := l.inFlight(); b != nil {
		return b.grantOf(l.now, l.epoch)
	}
	g := queue.Grant{At: l.now, Epoch: uint64(l.epoch)}
	switch a := l.shortest(); {
	case a == nil:
	case l.plan.Shape.Unaligned:
		g.Start = shape.SlotStart(a.Window.Length, l.now) + l.plan.Offset
		if g.End = g.Start + int64(a.Window.Length); l.plan.Shape.Transit > 0 {
			g.End = g.At + l.plan.Offset + l.plan.Shape.Transit
		}
	default:
		g.Start, g.End = a.Window.Start(), a.Window.End()
	}
	return g
}

// charge books n issued permits, in every schedule too. They were issued at the instant
// at or before, which is not before the latest advance.
func (l *ledger) charge(n, at int64) {
	if n <= 0 {
		return
	}
	l.overIssued += max(0, n-max(0, min(l.unpaced(), l.inHand())))
	l.issued += n
	l.Charge(n)
	for i := range l.spans {
		l.spans[i].by.Take(n, at)
	}
	l.repace()
}

// repace has pacing spread what is left, if some permits were issued or lent before they were due.
func (l *ledger) repace() {
	if l.plan.Pacing.Even {
		l.advance(l.now)
	}
}

// refund takes n permits of the grant out again, if they count still.
func (l *ledger) refund(n int64, grant queue.Grant) bool {
	if grant.InFlight() {
		return l.end(n, grant, l.now)
	}
	same := grant.Epoch == uint64(l.epoch)
	if grant.Epoch == 0 || !same && !l.plan.Shape.Unaligned || l.shortest() == nil {
		return false
	}
	if l.plan.Shape.Any() && l.now-grant.At >= int64(l.spans[0].Window.Length) {
		return false
	}
	l.issued -= n
	for b := range l.binding {
		if b.takesBack(grant.Epoch) {
			b.used -= n
		}
	}
	for i := range l.spans {
		s := &l.spans[i]
		if same {
			s.Used -= n
		}
		s.by.Undo(n, grant.At, l.now)
	}
	return true
}

// slotEnd returns until when permits that are issued from now on need not be told
// apart from each other; clock.Forever where only aligned windows bind.
func (l *ledger) slotEnd() int64 {
	end := clock.Forever
	for s := range l.bounded {
		end = min(end, s.by.SlotEnd(l.now))
	}
	return end
}
