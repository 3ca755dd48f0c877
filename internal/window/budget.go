package window

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// budget counts the permits issued under a limit of a long window. They are taken from
// etcd before: what is taken bounds them, not a share.
type budget struct {
	protocol.BudgetUse
	lent  int64 // permits that others have taken for this instance
	out   int64 // permits of Used that this instance has lent
	binds bool  // as for an account
}

func budgetIn(w protocol.Budget) budget {
	return budget{BudgetUse: protocol.BudgetUse{Budget: w, Left: -1}}
}

func (b *budget) left() int64 { return b.Taken + b.lent - b.Used }

// couldHave returns how many permits this instance could have by what was read last.
func (b *budget) couldHave() int64 {
	switch {
	case b.Spent:
		return b.left()
	case b.Left < 0:
		return Unbounded
	}
	return b.left() + b.Left
}

// adoptBudgets moves every budget to its window by the plan.
func (l *ledger) adoptBudgets() {
	for i := range l.budgets {
		l.budgets[i].binds = false
	}
	for _, planned := range l.plan.Budgets {
		b := l.budgetOf(planned.Window)
		if b == nil {
			l.budgets = append(l.budgets, budgetIn(planned))
			b = &l.budgets[len(l.budgets)-1]
			l.epoch++
		}
		switch {
		case planned.Start > b.Start:
			*b = budgetIn(planned)
			l.epoch++
		case planned.Start < b.Start:
			l.early = true
		}
		b.Spent = b.Spent && planned.Permits <= b.Permits
		if planned.Permits > b.Permits {
			b.Left = -1 // until etcd is read again
		}
		b.Limit, b.End, b.binds = planned.Limit, max(b.End, planned.End), true
		if b.Whole = planned.Whole; b.Whole {
			b.Taken, b.Spent, b.Left = b.Permits, true, 0
		}
	}
	l.budgets = slices.DeleteFunc(l.budgets, func(b budget) bool { return !b.binds && b.End <= l.now+l.plan.Offset })
}

func (l *ledger) budgetOf(length time.Duration) *budget {
	for i := range l.budgets {
		if l.budgets[i].Window == length {
			return &l.budgets[i]
		}
	}
	return nil
}

// counts reports whether a budget bounds what is issued. A forecast does not know what etcd
// may still hand out.
func (l *ledger) counts(b *budget) bool { return b.binds && (b.Spent || !l.ahead) }

// inHand returns how many permits the budgets leave now.
func (l *ledger) inHand() int64 {
	least := Unbounded
	for i := range l.budgets {
		if b := &l.budgets[i]; l.counts(b) {
			least = min(least, b.left())
		}
	}
	return least
}

// spentUntil returns when the budgets' windows end that hold no n permits more; 0 if there
// is none.
func (l *ledger) spentUntil(n int64) (end int64) {
	for i := range l.budgets {
		if b := &l.budgets[i]; b.binds && n > b.couldHave() {
			end = max(end, b.End-l.plan.Offset)
		}
	}
	return end
}

// wantForQueueLocked wants what the queue could have now, but for the budgets, and at least
// what its head wants; or what is paid of a debt next.
func (g *Gate) wantForQueueLocked() {
	if l := &g.mu.ledger; len(l.budgets) > 0 {
		g.wantBudgetsLocked(max(g.headLocked(), min(g.mu.queue.permits(), l.shares()-g.takenLocked()), l.instalment()))
	}
}

// wantNowLocked notes that n permits were wanted and refused: others are asked for some. If a short limit has not so
// many now, more of a budget would be of no use.
func (g *Gate) wantNowLocked(n int64) {
	g.noteLackLocked()
	if l := &g.mu.ledger; len(l.budgets) > 0 && n <= l.shares()-g.takenLocked() {
		g.wantBudgetsLocked(n)
	}
}

// wantBudgetsLocked notes that n permits are wanted, and says so if it is news.
func (g *Gate) wantBudgetsLocked(n int64) {
	l, news, taken := &g.mu.ledger, false, g.takenLocked()
	for i := range l.budgets {
		if b := &l.budgets[i]; b.binds && n > b.left()-taken && n > b.Need && n <= b.Permits {
			b.Need, news = n, true
		}
	}
	if news {
		g.Wanting()
	}
}

// Budgets returns the budgets that bind.
func (g *Gate) Budgets(at clock.Instant) (all []protocol.BudgetUse) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	return g.budgetsLocked()
}

// takenLocked returns how many permits were taken from the segment and are not booked.
func (g *Gate) takenLocked() int64 {
	if left := g.segment.Load().left.Load(); left != sealed {
		return g.mu.published - left
	}
	return 0
}

func (g *Gate) budgetsLocked() (all []protocol.BudgetUse) {
	for i := range g.mu.ledger.budgets {
		if b := &g.mu.ledger.budgets[i]; b.binds {
			all = append(all, g.budgetUseLocked(b))
		}
	}
	return all
}

// budgetUseLocked tells what is used of the permits that this instance has taken: lent ones
// are, borrowed ones count at their owner.
func (g *Gate) budgetUseLocked(b *budget) protocol.BudgetUse {
	use, taken := b.BudgetUse, g.takenLocked()
	use.Used += taken - b.lent
	use.Share, use.Full = g.planLocked().second(), g.mu.ledger.shares() <= taken
	return use
}

// Fund sets what has been taken of a budget's window. It returns what is set: not less
// than what was issued; and false if this window does not run any more.
func (g *Gate) Fund(at clock.Instant, f protocol.BudgetUse) (taken int64, ok bool) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	g.settleLocked()
	b := g.mu.ledger.budgetOf(f.Window)
	if b == nil || b.Start != f.Start {
		g.rebuildLocked(at)
		return 0, false
	}
	f.Taken = max(f.Taken, b.Used-b.lent)
	if f.Taken > b.Taken || f.Spent {
		b.Need = 0
	}
	worse := f.Taken < b.Taken || f.Spent && !b.Spent
	if f.Taken != b.Taken || f.Spent != b.Spent {
		g.mu.forecast.forget()
	}
	could := g.headLocked() <= b.couldHave()
	b.Taken, b.Spent, b.Away, b.Left, b.Withheld = f.Taken, f.Spent, f.Away, f.Left, f.Withheld
	g.mu.forecast.void = g.mu.forecast.void || worse || could && g.headLocked() > b.couldHave()
	g.rebuildLocked(at)
	return f.Taken, true
}
