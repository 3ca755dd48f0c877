package window

import (
	"cmp"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// Usage is the state of a gate at one instant.
type Usage struct {
	LendingCounts
	Issued     int64 // permits issued to own callers since the beginning, and debts paid
	OverIssued int64 // of these, beyond the share: 0, or a bug
	Unended    int64 // calls in flight that nobody has ended in all the time that a call may take, since the beginning
	Debt       int64 // permits that calls have cost beyond those issued, and not paid yet
	// DebtUntil is the monotonic instant at which the debt is paid, about, and DebtKnown says that it is not by the own
	// share alone where others lend: see Account.PaidAt.
	DebtUntil int64
	DebtKnown bool
	Waiting   int                // waiters in the queue
	WaitingBy [queue.Classes]int // by class
	Head      int64              // permits that the first of them wants
	HeadAt    int64              // monotonic instant at which it will have them; clock.Forever: not known
	Largest   int64              // the permits of the largest request, by the limits in force where others lend; 0: not known
	// Limits are those that bind, shortest window first, and then the budgets.
	Limits []LimitUsage
}

// LimitUsage is the use of one limit.
type LimitUsage struct {
	plans.Limit
	// Used are the permits issued to own callers, borrowed ones included; those that were lent
	// to others are not among them.
	Share, Used int64
	// Left is how many permits this limit leaves now, and Kept how many of them are for
	// critical calls only.
	Left, Kept int64
	// Start and End bound the window, in corrected wall time. Where aligned windows
	// do not bind, it is the one at whose end the next permit comes back; Used are
	// then the permits that count against the share.
	Start, End int64
	// Budget is nil for other limits. The permits taken of it are the Share.
	Budget *protocol.BudgetUse
}

// Free reports whether the limit binds nobody, and nobody has set it: see protocol.Free.
func (u *LimitUsage) Free() bool {
	return u.Budget == nil && protocol.Free(quota.Limit{Permits: u.Limit.Limit, Window: u.Window.Length})
}

// Issued is Usage.Issued.
func (g *Gate) Issued(at clock.Instant) int64 {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	return g.mu.ledger.issued + g.takenLocked()
}

// Usage returns the state of the gate at the instant at.
func (g *Gate) Usage(at clock.Instant) Usage { return g.UsageFor(at, 1, queue.Default) }

// UsageFor is Usage as a newcomer of class c sees it that wants n permits: see protocol.BudgetUse.Over.
func (g *Gate) UsageFor(at clock.Instant, n int64, c queue.Class) Usage {
	g.mu.Lock()
	defer g.unlock()
	s, q, l := g.currentLocked(at), &g.mu.queue, &g.mu.ledger
	taken := g.mu.published - s.Left()
	u := Usage{
		LendingCounts: g.mu.borrower.counts(), Issued: l.issued + taken, OverIssued: l.overIssued, Unended: l.unended, Debt: l.debt,
		Waiting: q.Len(), Head: g.headLocked(), HeadAt: clock.Forever,
		Limits: make([]LimitUsage, 0, len(l.plan.Limits)),
	}
	u.DebtUntil, u.DebtKnown = l.paidAt(l.plan.Gradual(), g.mayBorrowLocked() && l.plan.Lending.Instances > 1)
	for c := range u.WaitingBy {
		u.WaitingBy[c] = q.LenOf(queue.Class(c))
	}
	if u.Head > 0 && g.planLocked().Known && !q.Head().Large() {
		if at, known := g.etaLocked(u.Head, 0, q.Head().Class(), false); known {
			u.HeadAt = at
		}
	}
	if g.planLocked().Known {
		if u.Largest = lentRoom(g.planLocked()); u.Largest == 0 { // who borrows need not look ahead, which takes a plan for each window
			u.Largest = g.ownLocked(shape.Unbounded)
		}
	}
	for i := range l.spans {
		if s := &l.spans[i]; l.runs(s) {
			u.Limits = append(u.Limits, s.usage(l, g.presentLocked()))
		}
	}
	all := queue.Sum(queue.Sum(n, g.beforeLocked(n, clock.Forever, c)), queue.Sum(l.debt, taken))
	for b := range l.binding {
		use := b.use(all)
		use.Used += taken
		u.Limits = append(u.Limits, usageOf(use))
	}
	return u
}

func usageOf(b protocol.BudgetUse) LimitUsage {
	return LimitUsage{
		Limit: plans.Limit{Window: quota.WindowAt(b.Window, b.Start), Limit: b.Permits},
		Share: b.Taken, Used: b.Used, Left: max(0, b.Taken-b.Used), Start: b.Start, End: b.End, Budget: &b,
	}
}

// Uses returns the use of each limit that binds the key, shortest window first, for a call that wants n permits. Of the
// limits that instances share, it has neither the Limit nor the Total.
func (a *Account) Uses(n int64) (all []LimitUsage) {
	usable := a.debt == 0 && !a.early && a.windows != nil && !a.windows.Shut
	for s := range a.bounded {
		u := s.use(plans.Limit{Window: s.Window})
		if usable {
			u.Left = max(0, s.left()-a.reserved)
		}
		all = append(all, u)
	}
	for b := range a.binding {
		u := usageOf(b.use(queue.Sum(n, a.debt)))
		u.Left = max(0, u.Left-a.reserved)
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b LimitUsage) int { return cmp.Compare(a.Window.Length, b.Window.Length) })
	return all
}

// Estimate returns the instant at which a newcomer of class c that wants n permits will
// have them at the earliest, if nothing changes; one that has passed means now. known is false if
// only news can bring them, if no share will hold so many, or while a long limit withholds them.
func (g *Gate) Estimate(at clock.Instant, n int64, c queue.Class) (when int64, known bool) {
	g.mu.Lock()
	defer g.unlock()
	switch s := g.currentLocked(at); {
	case g.mu.closed || !g.fitsLocked(n):
		return s.until, false
	case n <= s.LeftFor(c), n <= g.heldForLocked(c):
		return g.mu.last.Mono, true
	case g.mu.ledger.Withheld(n, g.takenLocked()):
		return s.until, false
	}
	g.keepLocked(n)
	return g.whenLocked(n, c)
}

// use returns the use of a limit, without what is left.
func (s *span) use(of plans.Limit) LimitUsage {
	u := LimitUsage{Limit: of, Share: s.own(), Used: s.Used - s.lent, Start: s.Window.Start(), End: s.Window.End()}
	if s.Bound == shape.Unbounded {
		u.Share = 0
	}
	return u
}

// usage returns the use of a provider's limit, with the permits that are not booked yet.
func (s *span) usage(l *ledger, as shape.Present) LimitUsage {
	u, taken := s.use(*l.limit(s.Window)), as.Taken
	u.Used += taken
	if s.Bound == shape.Unbounded {
		return u
	}
	if l.debt == 0 {
		u.Left = max(0, s.left()-taken)
		kept, _ := s.kept(l, as.Now)
		u.Kept = min(u.Left, kept)
	}
	if !l.plan.Shape.Unaligned {
		return u
	}
	if n, sliding := s.by.Counted(); sliding {
		u.Used = n + taken
	}
	u.End = s.by.When(&s.Count, u.Left+1, as) + l.plan.Offset
	u.Start = u.End - int64(s.Window.Length)
	return u
}

// tellBookedLocked tells Booked.
func (g *Gate) tellBookedLocked() {
	if g.Booked == nil {
		return
	}
	g.Booked(g.mu.ledger.Booked())
}
