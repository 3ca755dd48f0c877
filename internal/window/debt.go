package window

import "time"

// A call can cost more than the permits that were issued for it. The difference is a
// debt. Nothing else is issued until it is paid: booked, in every account, as permits
// issued when they may be. So no window's bound is exceeded by what is booked, and all
// that calls have cost is booked or owed.

// debtParts is the least number of parts in which a share pays a debt. More parts need
// more wake-ups; with fewer, permits are paid later than they could be.
const debtParts = 8

// debtEvery is the time in which a bucket's accruals pay a debt together, however small the
// burst: so the rate of payments does not depend on how punctual wake-ups are.
const debtEvery = int64(10 * time.Millisecond)

// instalment returns how many permits of the debt are paid together next; 0 without a
// debt. A forecast pays the same instalments, so it foresees their instants.
func (l *ledger) instalment() int64 {
	n := l.debt
	for a := range l.bounded {
		part := a.bound / debtParts
		if a.bucket != nil {
			part = max(a.bucket.burst/debtParts, scaled(debtEvery, a.bucket.share, spanOf(a.bucket.length), 0))
		}
		if !l.plan.Shape.Unaligned {
			part = min(part, a.bound-a.used)
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
	if l.debt -= n; l.debt == 0 {
		l.advance(l.now) // buckets spill again
	}
}
