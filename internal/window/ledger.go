package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// account counts the permits issued under one limit.
type account struct {
	window quota.Window
	// limit is the plan's. It is nil once the limit is gone: the account is then kept to the
	// end of its window, in case the limit comes back.
	limit *Limit
	bound int64            // permits that may be issued in window, borrowed ones included
	lent  int64            // permits of them that others have lent to this instance
	out   int64            // permits of used that this instance has lent
	used  int64            // permits issued in window
	paid  int64            // permits of used that have paid debts
	by    [shapes]schedule // nil where a shape does not bind
}

// ledger holds an account for every window length that binds, or did bind within
// the running window of that length. It says how many permits may be issued now,
// and when so many more may be. The gate keeps one; a forecast runs a copy ahead.
//
// The order of calls: adopt when a plan begins, advance as time goes on within
// it, then any of the others.
type ledger struct {
	accounts []*account // shortest window first
	budgets  []budget
	plan     *Plan
	now      int64 // as of the latest adopt or advance
	issued   int64 // permits booked since the beginning, but for those lent
	paid     int64 // of issued: what has paid debts
	early    bool  // corrected time was set back: an account's window has not begun
	// epoch counts the moments at which any account moved to another window. It
	// is never 0 once something was issued.
	epoch  uint64
	wanted wanted
	debt   int64 // permits that calls have cost beyond those issued, to be paid first
	guests loans // told to each: see asGuest
	hosts  loans // heard of each
	ended  Loans // of the windows that ended last
	ahead  bool  // a forecast's
	// overIssued counts permits that were booked though a bound did not allow
	// them. It is checked where permits are booked, not where they are counted out.
	overIssued int64
}

// adopt moves every account to its window by the plan, at the instant now. A
// window's index never goes back, whatever the clock does.
func (l *ledger) adopt(p *Plan, now int64) {
	was := l.epoch
	l.plan, l.now, l.early = p, max(l.now, now), false
	for _, a := range l.accounts {
		a.limit = nil
	}
	for i := range p.Limits {
		l.bind(&p.Limits[i])
	}
	l.accounts = slices.DeleteFunc(l.accounts, func(a *account) bool {
		if a.limit != nil || l.now+p.Offset < a.ends(&p.Shape) {
			return false
		}
		l.epoch++
		return true
	})
	slices.SortFunc(l.accounts, func(a, b *account) int { return cmp.Compare(a.window.Length, b.window.Length) })
	for _, a := range l.accounts {
		if w := quota.WindowAt(a.window.Length, l.now+p.Offset); a.limit == nil && w.Index > a.window.Index {
			a.begin(w, l) // only shapes keep it longer than its window
		}
		l.reshape(a)
	}
	l.adoptBudgets()
	if len(p.Limits) > 0 {
		l.wanted.roll(p.Limits[0].Window)
	}
	if l.epoch != was && !l.ahead { // a forecast lends and borrows nothing: the maps are not its own
		l.endLoans()
	}
}

// ends returns until when an account whose limit is gone is kept: its permits
// count to the end of their window, or of every span that holds them.
func (a *account) ends(s *Shape) int64 {
	if s.Any() {
		return a.window.End() + 2*int64(a.window.Length) + s.Skew
	}
	return a.window.End()
}

// begin moves the account to another window, in which nothing was issued yet.
func (a *account) begin(w quota.Window, l *ledger) {
	*a = account{window: w, bound: Unbounded, limit: a.limit, by: a.by}
	l.epoch++
}

// bind takes a limit's window and bound into its account.
func (l *ledger) bind(limit *Limit) {
	a := l.find(limit.Window.Length)
	if a == nil {
		a = &account{window: quota.Window{Length: limit.Window.Length, Index: math.MinInt64}}
		l.accounts = append(l.accounts, a)
	}
	a.limit = limit
	switch {
	case limit.Window.Index > a.window.Index:
		a.begin(limit.Window, l)
	case limit.Window.Index < a.window.Index:
		l.early = true
	}
	if a.bound = limit.Permits; a.bound != Unbounded {
		a.bound += a.lent
	}
}

// advance brings the ledger to the instant now, within the same plan.
func (l *ledger) advance(now int64) {
	l.now = max(l.now, now)
	for _, a := range l.accounts {
		a.set(l)
	}
}

// bounded goes over the accounts whose limits bind.
func (l *ledger) bounded(yield func(*account) bool) {
	for _, a := range l.accounts {
		if a.limit != nil && a.bound != Unbounded && !yield(a) {
			return
		}
	}
}

// budget returns how many permits may be issued now: the least that any account
// has left; 0 when nothing is known to bind, because no knowledge is no share.
func (l *ledger) budget() int64 { return min(l.shares(), max(0, l.inHand())) }

// shares is budget as far as shares decide it.
func (l *ledger) shares() int64 {
	if l.plan.Shut || l.early {
		return 0
	}
	least := Unbounded
	for a := range l.bounded {
		least = min(least, a.left(l))
	}
	if least == Unbounded {
		return 0
	}
	return max(0, least)
}

// left returns how many permits the account's limit leaves now.
func (a *account) left(l *ledger) int64 {
	left := a.bound
	for s := range a.schedules {
		left = min(left, s.left(a, l))
	}
	return left
}

// when returns the earliest instant, not before now, at which n permits may be
// issued together to a call of class c if nothing else is. ok is false if that is not before the
// plan's end; the instant is then the earliest at which another plan may allow
// them.
func (l *ledger) when(n int64, c Class) (at int64, ok bool) {
	next := max(l.plan.Until, l.plan.PausedUntil)
	at, bound := l.now, false
	for a := range l.bounded {
		bound = true
		t, under := a.when(n, l)
		if !under {
			at, next = Forever, max(next, t)
			continue
		}
		if at = max(at, t); c != Critical {
			at = max(at, a.keptUntil(n, l))
		}
	}
	if end := l.spentUntil(n); end > 0 {
		at, next = Forever, max(next, end)
	}
	if !bound || l.plan.Shut || l.early || at >= l.plan.Until {
		return next, false
	}
	return at, true
}

// when is the same for one account, whatever the plan's end.
func (a *account) when(n int64, l *ledger) (at int64, ok bool) {
	at, ok = l.now, true
	for s := range a.schedules {
		switch t, under := s.when(a, n, l); {
		case under == ok:
			at = max(at, t)
		case ok:
			at, ok = t, false
		}
	}
	return at, ok
}

// next returns how many permits are issued together next, for a caller that wants n.
func (l *ledger) next(n int64) int64 {
	if l.debt > 0 {
		return l.instalment()
	}
	return n
}

// release makes ready what is issued now: permits that were not asked for are spread, and a
// debt is paid. The gate calls it where a segment begins, for the head of its queue, and the
// forecast wherever the gate will: so what it does depends on nothing else that the gate
// has seen. While the head's permits are not there, nothing is spread.
func (l *ledger) release(need int64) (paid int64) {
	for {
		n := l.next(need)
		if at, ok := l.when(n, Critical); !ok || at > l.now {
			break
		}
		if l.pace(need); l.debt == 0 || n > l.budget() {
			break
		}
		l.repay(n)
		paid += n
	}
	return paid
}

// pace spreads permits that were due and not asked for along the rest of the window, so
// that they do not come as a burst. It keeps back the most of these: need, the largest
// refused request, a debt's instalment, a tick's permits.
func (l *ledger) pace(need int64) {
	need = max(need, l.wanted.most(), l.instalment())
	for _, a := range l.accounts {
		for s := range a.schedules {
			s.spread(a, need, l.now)
		}
	}
}

// grant returns the window of permits that are issued now.
func (l *ledger) grant() Grant {
	g := Grant{At: l.now, Epoch: l.epoch}
	switch a := l.shortest(); {
	case a == nil:
	case l.plan.Shape.Unaligned:
		slot := int64(protocol.SlotOf(a.window.Length))
		g.Start = slotAt(a.window.Length, l.now)*slot + l.plan.Offset
		if g.End = g.Start + int64(a.window.Length); l.plan.Shape.Transit > 0 {
			g.End = g.At + l.plan.Offset + l.plan.Shape.Transit
		}
	default:
		g.Start, g.End = a.window.Start(), a.window.End()
	}
	return g
}

// charge books n issued permits in every account. They were issued at the instant
// at or before, which is not before the latest advance.
func (l *ledger) charge(n, at int64) {
	if n <= 0 {
		return
	}
	l.overIssued += max(0, n-l.budget())
	l.issued += n
	for i := range l.budgets {
		l.budgets[i].Used += n
	}
	for _, a := range l.accounts {
		a.used += n
		for s := range a.schedules {
			s.take(n, at)
		}
	}
}

// refund takes n permits of the grant out again, if they count still.
func (l *ledger) refund(n int64, grant Grant) bool {
	same := grant.Epoch == l.epoch
	if grant.Epoch == 0 || !same && !l.plan.Shape.Unaligned || l.shortest() == nil {
		return false
	}
	if l.plan.Shape.Any() && l.now-grant.At >= int64(l.accounts[0].window.Length) {
		return false
	}
	l.issued -= n
	for i := range l.budgets {
		if b := &l.budgets[i]; same || grant.At+l.plan.Offset >= b.Start {
			b.Used -= n
		}
	}
	for _, a := range l.accounts {
		if same {
			a.used -= n
		}
		for s := range a.schedules {
			s.undo(n, grant.At, l.now)
		}
	}
	return true
}

// slotEnd returns until when permits that are issued from now on need not be told
// apart from each other; Forever where only aligned windows bind.
func (l *ledger) slotEnd() int64 {
	end := Forever
	for a := range l.bounded {
		for s := range a.schedules {
			end = min(end, s.slotEnd(l.now))
		}
	}
	return end
}

// shortest returns the binding account with the shortest window, or nil.
func (l *ledger) shortest() *account { return l.first(func(a *account) bool { return a.limit != nil }) }

// find returns the account for windows of a length, or nil.
func (l *ledger) find(length time.Duration) *account {
	return l.first(func(a *account) bool { return a.window.Length == length })
}

func (l *ledger) first(is func(*account) bool) *account {
	i := slices.IndexFunc(l.accounts, is)
	if i < 0 {
		return nil
	}
	return l.accounts[i]
}

// copyFrom makes l a copy of o that shares nothing with it that changes. Its memory is
// used again.
func (l *ledger) copyFrom(o *ledger) {
	accounts, budgets := l.accounts, l.budgets
	*l = *o
	l.budgets = append(budgets[:0], o.budgets...)
	l.accounts = accounts[:min(len(accounts), len(o.accounts))]
	for i, a := range o.accounts {
		if i == len(l.accounts) {
			l.accounts = append(l.accounts, new(account))
		}
		l.accounts[i].copyFrom(a)
	}
}

// copyFrom is the same for an account. By pointers, for every caller that waits
// comes by, and its stack shall not grow.
func (a *account) copyFrom(o *account) {
	by := a.by
	*a = *o
	for i, s := range o.by {
		if s != nil {
			a.by[i] = s.copyTo(by[i])
		}
	}
}
