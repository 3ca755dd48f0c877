package window

import "github.com/quotient-limiter/quotient/quota"

// Where permits are lent, forecasts of the own share say nothing about when a call is served: others
// may have some for it. So a call is refused only where it surely is not served by its deadline:
// until then all that the fleet may issue could come here.

// mayBorrowLocked reports whether others may lend to this instance, now or later: to one that is alone
// too, for another may join.
func (g *Gate) mayBorrowLocked() bool {
	l := &g.mu.ledger
	return l.plan.Known && l.plan.Lending.Borrows && l.borrowable()
}

// Eta returns a monotonic instant, not before now, before which n more permits are surely not here
// beside what is owed, whatever others lend: until then all that the limits let the fleet issue could
// come to this instance. It is Forever if only news can help. most says of a limit how many permits all
// instances may issue in the window that runs, and how many at most in a later one; Unbounded where that
// is not known.
func (a *Account) Eta(n, now int64, most func(quota.Window) (total, later int64)) (at int64) {
	at = now
	need := addCapped(n, a.debt)
	for s := range a.bounded {
		total, later := most(s.window)
		switch lacks := need - (total - (s.used - s.lent)); {
		case later <= 0:
			return Forever
		case lacks > 0:
			windows := (lacks - 1) / later // that pass besides the one that runs
			if windows > (Forever-s.window.End())/2/int64(s.window.Length) {
				return Forever
			}
			at = max(at, s.window.End()+windows*int64(s.window.Length)-a.windows.Offset)
		}
	}
	return at
}

// etaLocked returns an instant before which a call for n permits, behind others that want so many
// before it, is not served whatever is lent.
func (g *Gate) etaLocked(n, before int64) int64 {
	l := &g.mu.ledger
	at := max(g.mu.last, l.plan.PausedUntil, l.spentUntil(n))
	if at == Forever {
		return at
	}
	return l.Eta(addCapped(addCapped(n, before), g.takenLocked()), at, func(w quota.Window) (total, later int64) {
		limit := l.limit(w)
		return limit.Limit, limit.Later
	})
}

// beforeLocked returns how many permits are surely issued to those that wait before n are to a
// newcomer of class c.
func (g *Gate) beforeLocked(n int64, c Class) (permits int64) {
	for i := range g.mu.queue.lanes[:c+1] {
		permits = addCapped(permits, g.mu.queue.lanes[i].before(n))
	}
	return permits
}

// inTimeLocked reports whether a newcomer may be served by its deadline. If so it is to be queued.
func (g *Gate) inTimeLocked(n, deadline int64, c Class, unsure bool) bool {
	if !g.mayBorrowLocked() {
		return g.mu.forecast.join(g, n, deadline, c, unsure)
	}
	g.mu.forecast.skip(c, n)
	return g.etaLocked(n, g.beforeLocked(n, c)) <= deadline
}

// judgeByLoansLocked refuses those that wait and are not served in time whatever is lent.
func (g *Gate) judgeByLoansLocked() {
	var ahead crowd
	g.refuseLocked(Limited, func(w *Waiter) bool {
		late := g.etaLocked(w.n, ahead.before(w.n)) > w.deadline
		if !late {
			ahead.join(w)
		}
		return late
	})
}

// whenLocked returns when a newcomer is worth trying again where others may lend: when permits of the
// own share are due, at the end of the shortest window, or when even that is too soon.
func (g *Gate) whenLocked(n int64, c Class) int64 {
	l := &g.mu.ledger
	at := l.shortest().window.End() - l.plan.Offset + l.plan.Guard
	if l.plan.gradual() || l.plan.Critical > 0 {
		if own, known := g.mu.forecast.estimate(g, n, c); known {
			at = min(at, own)
		}
	}
	return max(at, g.etaLocked(n, g.beforeLocked(n, c)))
}
