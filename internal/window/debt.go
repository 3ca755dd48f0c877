package window

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// A call can cost more than the permits that were issued for it. The difference is a
// debt. Nothing else is issued or lent until it is paid: booked, in every account, as permits
// issued when they may be. A payment is a use like any other, so permits that others lend pay
// too. No window's bound is exceeded by what is booked, and all that calls have cost is booked
// or owed.

// Owe adds n permits that calls have cost beyond those issued. Nothing is issued until later permits
// have paid them: see Pay.
func (a *Account) Owe(n int64) { a.debt = queue.Sum(a.debt, n) }

// Pay pays what can be paid of the debt now, and returns how many permits that is. A payment is a use, so Pay is called
// only when a permit could be issued: while the bounds of the account are in force, and the proof of the view behind
// them is not over. The account knows neither.
func (a *Account) Pay() int64 {
	n := min(a.debt, a.leftInAll())
	if n > 0 {
		a.Charge(n)
		a.paidOff(n)
	}
	return n
}

// paidOff notes that n permits of those that are booked have paid a part of the debt.
func (a *Account) paidOff(n int64) {
	a.debt -= n
	for i := range a.spans {
		a.spans[i].paid += n
	}
}

// asksFrom returns the monotonic instant from which others are asked for permits in the windows that run.
// wanted says that callers want some. If only a debt does, others are asked late in the account's shortest window, so that
// it takes nothing that they may want yet.
func (a *Account) asksFrom(wanted bool) int64 {
	if wanted || a.debt == 0 {
		return math.MinInt64
	}
	return a.windows.Late(a.Shortest())
}

// Debt returns what is owed.
func (a *Account) Debt() int64 { return a.debt }

// paidLast returns how many permits of a debt the window before the one that runs has paid, of the shortest limit; 0 if it
// did not pay from its beginning to its end.
func (a *Account) paidLast() int64 { return max(0, -a.before) }

// PaidAt returns about when the debt is paid, if nothing changes: a monotonic instant; clock.Forever if it never is, or that
// is not known. What others lend pays too, and how much that is a window of the shortest limit shows in which nothing was
// issued. known is false before, and where a longer limit decides: then the instant is by the own share alone, and may be
// far too late.
func (a *Account) PaidAt() (at int64, known bool) {
	return a.paidAt(false, a.windows != nil && a.windows.Lending.Borrows)
}

// paidAt is the same. gradual says that permits come along a window, not only at its start, and lent that others lend some.
func (a *Account) paidAt(gradual, lent bool) (at int64, known bool) {
	at = math.MinInt64
	shortest := a.shortest()
	for s := range a.bounded {
		each, shown := s.own(), !lent
		if lent && s == shortest && a.paidLast() > 0 {
			each, shown = max(each, a.paidLast()), true
		}
		if ends := paidAt(a.debt, s.Bound-s.Used, each, s.Window, a.windows, gradual); ends > at {
			at, known = ends, shown || ends <= a.windows.OpensAfter(s.Window.End())
		}
	}
	if at == math.MinInt64 || at == clock.Forever {
		return clock.Forever, false
	}
	return at, known
}

// instalment returns how many permits of the debt are paid together next; 0 without a
// debt.
func (l *ledger) instalment() int64 {
	n := l.debt
	for s := range l.bounded {
		part := shape.Unbounded
		if l.plan.Gradual() {
			part = s.Bound / shape.DebtParts
		}
		n = min(n, max(1, min(part, s.by.Part(&s.Count))))
	}
	if hand := l.inHand(); hand != shape.Unbounded {
		n = min(n, max(1, hand))
	}
	return n
}

// pay books n permits of the debt.
func (l *ledger) pay(n int64) {
	l.charge(n, l.now)
	l.paid += n
	if l.paidOff(n); l.debt == 0 {
		l.advance(l.now) // buckets spill again
	}
}

// paidAt returns about when a debt is paid by what is left of a window and by so many permits of each
// window after it: at the beginning of the last one or, where permits come along the window, in it.
func paidAt(debt, left, share int64, w quota.Window, in *plans.Windows, gradual bool) int64 {
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
		return clock.Forever
	}
	return in.OpensAfter(w.End()) + int64(after)
}
