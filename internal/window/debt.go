package window

import (
	"math"

	"github.com/quotient-limiter/quotient/quota"
)

// A call can cost more than the permits that were issued for it. The difference is a
// debt. Nothing else is issued or lent until it is paid: booked, in every account, as permits
// issued when they may be. A payment is a use like any other, so permits that others lend pay
// too. No window's bound is exceeded by what is booked, and all that calls have cost is booked
// or owed.

// debtParts is the least number of parts in which a share that comes bit by bit pays a debt.
// More parts need more wake-ups; with fewer, permits are paid later than they could be.
const debtParts = 8

// instalment returns how many permits of the debt are paid together next; 0 without a
// debt. A forecast pays the same instalments, so it foresees their instants.
func (l *ledger) instalment() int64 {
	n := l.debt
	for a := range l.bounded {
		part := Unbounded
		if l.plan.gradual() {
			part = a.bound / debtParts
		}
		for s := range a.schedules {
			part = min(part, s.part(a))
		}
		n = min(n, max(1, part))
	}
	for i := range l.budgets {
		if b := &l.budgets[i]; l.counts(b) {
			n = min(n, max(1, b.left()))
		}
	}
	return n
}

// repay books n permits of the debt.
func (l *ledger) repay(n int64) {
	l.charge(n, l.now)
	l.paid += n
	for _, a := range l.accounts {
		a.paid += n
	}
	if l.debt -= n; l.debt == 0 {
		l.advance(l.now) // buckets spill again
	}
}

// paidAt returns about when the own shares alone will have paid the debt, if nothing changes.
func (l *ledger) paidAt() int64 {
	at, bound := l.now, false
	for a := range l.bounded {
		bound = true
		own := a.bound - a.lent
		at = max(at, paidAt(l.debt, a.bound-a.used, own, a.window, l.plan.Offset, l.plan.gradual()))
	}
	if !bound {
		return Forever
	}
	return at
}

// paidAt returns about when a debt is paid by what is left of a window and by a share of each
// window after it: at the beginning of the last one or, where permits come along the window, in it.
func paidAt(debt, left, share int64, w quota.Window, offset int64, gradual bool) int64 {
	rest := float64(debt) - float64(max(0, left))
	if rest <= 0 {
		return math.MinInt64
	}
	windows := rest / float64(max(0, share)) // +Inf without a share
	if !gradual {
		windows = math.Ceil(windows) - 1
	}
	after := windows * float64(w.Length)
	if after > math.MaxInt64/4 {
		return Forever
	}
	return w.End() - offset + int64(after)
}
