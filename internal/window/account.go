package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// Account counts the permits that this instance issues for one key. The provider is the key with the
// empty name: see ledger. The zero Account has issued none, and has nothing left. After the
// windows have changed, Adopt is called before anything is issued by the new ones. What calls had of a Front is booked
// before that, in the windows that the account still has (Front.Shut). An Account is not safe for concurrent use.
type Account struct {
	windows *plans.Windows // by which the counts are; nil before the first Adopt
	spans   []span         // shortest first
	budgets []long
	early   bool // corrected time was set back: the window of a span, or of a long limit, has not begun
	// forgotten says that the zero Account has taken the place of this one, which therefore has nothing left for good.
	forgotten bool
	// laid is how many permits lay in the account's Front after Open or More last laid some into it, or booked what calls had
	// of it.
	laid uint8
	// crowded says that calls were refused by the Front at the same time, in the windows that run.
	crowded bool
	// epoch is raised whenever a span enters another window or is forgotten, when a long limit enters another window or
	// binds anew, and when etcd was restored. Refund sees by it whether a permit still counts. Once something was issued it
	// is not 0, until it wraps around after years.
	epoch    uint32
	debt     int64 // permits that calls have cost beyond those issued, to be paid first
	reserved int64 // permits of a key that are kept for callers that still wait for the provider's
	// before tells of the shortest limit's window before the one that runs. If it is 0 or more, it is how many permits
	// callers used in it. If it is less, callers had none, since a debt took all: it is minus how many permits of the debt
	// were paid (paidLast). It is one field because a key's memory is bounded.
	before int64
	guests loans // what was lent to each guest, as this instance has told it
	hosts  loans // what each host has lent, as it has told this instance
	// trade is what a key's callers want and what others are asked for; nil until the key lacks permits or
	// is asked for some. The provider's is its gate's: see borrower.
	trade *keyTrade
}

// span counts the permits of an account in one window: the running one of its length. If the limit is
// removed, the span stays until its window ends, since the limit may come back.
type span struct {
	shape.Count
	borrowed int64 // permits of bound that others have lent to this instance
	lent     int64 // permits of used that this instance has lent
	paid     int64 // permits of used that have paid debts
	// by are the schedules of a provider's limit that does not allow all permits of a window at once. It is nil for a
	// limit that does, as every limit of a key.
	by *shape.Schedules
}

// Windows returns the windows by which the counts are; nil before the first Adopt.
func (a *Account) Windows() *plans.Windows { return a.windows }

// Adopt moves the account to the windows that run. bound is asked for the bound of each, and budgets
// for the long limits, if there may be any.
func (a *Account) Adopt(windows *plans.Windows, bound func(quota.Window) int64, budgets func() []protocol.Budget) {
	a.begin(windows, bound)
	if len(windows.Budgets) > 0 || len(a.budgets) > 0 {
		a.adoptBudgets(budgets()) // what it returns is 0: a key has no limit in flight
	}
	a.dropEnded(func(s *span) int64 { return s.Window.End() })
	a.guests.end(windows.Over)
	a.hosts.end(windows.Over)
}

// begin moves the spans to the windows that run. A window's index never goes back, whatever the clock
// does.
func (a *Account) begin(windows *plans.Windows, bound func(quota.Window) int64) {
	was := a.Shortest().Length
	a.windows, a.early, a.crowded = windows, false, false
	for i := range a.spans {
		a.spans[i].Bound = shape.Unbounded
	}
	for _, w := range windows.Running {
		s := a.move(w, was)
		s.Bound = queue.Sum(bound(w), s.borrowed)
	}
	if a.Shortest().Length != was {
		a.before = 0
	}
	a.trade.follow(a)
}

// move returns the span with w's length, and moves it to w. A span that is in a later window stays
// there: then the account is early. shortest is the length of the account's shortest window until now.
func (a *Account) move(w quota.Window, shortest time.Duration) *span {
	i, there := slices.BinarySearchFunc(a.spans, w, func(s span, w quota.Window) int { return cmp.Compare(s.Window.Length, w.Length) })
	if !there {
		a.spans = slices.Insert(a.spans, i, span{Count: shape.Count{Window: quota.Window{Length: w.Length, Index: math.MinInt64}}})
	}
	s := &a.spans[i]
	switch {
	case w.Index > s.Window.Index:
		if w.Length == shortest {
			a.trade.leave(a, s, w)
			a.before = s.calledBefore(w, a.debt)
		}
		s.enter(w)
		a.epoch++
	case w.Index < s.Window.Index:
		a.early = true
	}
	return s
}

// enter moves the span to a window in which nothing was issued yet. Its schedules count on.
func (s *span) enter(w quota.Window) {
	*s = span{Count: shape.Count{Window: w, Bound: shape.Unbounded}, by: s.by}
}

// calledBefore returns what Account.before is to be once the span has moved to the window w. debt is what the account owes.
func (s *span) calledBefore(w quota.Window, debt int64) int64 {
	switch called := max(0, s.called()); {
	case s.Window.Index+1 != w.Index:
		return 0
	case called == 0 && debt > 0:
		return -s.paid
	default:
		return called
	}
}

// called returns how many permits callers have used.
func (s *span) called() int64 { return s.Used - s.lent - s.paid }

// own is the part of the bound that is this instance's share.
func (s *span) own() int64 { return s.Bound - s.borrowed }

// dropEnded forgets the spans that bind no more and that count no more: until returns the corrected wall
// time from which on a span counts no more, which is later than its window's end under some shapes.
func (a *Account) dropEnded(until func(*span) int64) {
	was := len(a.spans)
	a.spans = slices.DeleteFunc(a.spans, func(s span) bool { return s.Bound == shape.Unbounded && !a.runs(&s) && until(&s) <= a.windows.Over })
	if len(a.spans) < was {
		a.epoch++
	}
}

// runs reports whether a window of the span's length runs by the plan.
func (a *Account) runs(s *span) bool {
	return slices.ContainsFunc(a.windows.Running, func(w quota.Window) bool { return w.Length == s.Window.Length })
}

// bounded goes over the spans whose limits bind.
func (a *Account) bounded(yield func(*span) bool) {
	for i := range a.spans {
		if s := &a.spans[i]; s.Bound != shape.Unbounded && !yield(s) {
			return
		}
	}
}

// shortest returns the span of the shortest window that runs and in which the account is limited. Some windows that run
// limit other keys only: those of a length that is in their overrides alone. If the account is limited in none, it is the span of the shortest that
// runs, and nil if none runs.
func (a *Account) shortest() *span {
	for i := range a.spans { // a plain loop, as in shares
		if s := &a.spans[i]; s.Bound != shape.Unbounded {
			return s
		}
	}
	if a.windows == nil || len(a.windows.Running) == 0 {
		return nil
	}
	return a.span(a.windows.Running[0])
}

// Shortest returns the shortest window that runs and in which the account is limited: see shortest. It is the zero Window
// if none runs.
func (a *Account) Shortest() (w quota.Window) {
	if s := a.shortest(); s != nil {
		w = s.Window
	}
	return w
}

// span returns the span of windows as long as w; nil if there is none.
func (a *Account) span(w quota.Window) *span {
	for i := range a.spans {
		if a.spans[i].Window.Length == w.Length {
			return &a.spans[i]
		}
	}
	return nil
}

// Left returns how many permits may be issued now, less those reserved. It is 0 while a debt is owed, and
// where no limit is known: without a plan this instance may issue nothing.
func (a *Account) Left() int64 {
	left := a.LeftToBorrowers()
	if len(a.budgets) > 0 {
		left = max(0, min(left, a.inHand()-a.reserved))
	}
	return left
}

// LeftToBorrowers is Left without the long limits, which do not bound what other instances borrow.
func (a *Account) LeftToBorrowers() int64 {
	if a.debt > 0 {
		return 0
	}
	return max(0, a.shares()-a.reserved)
}

// left is Left, but it does not take off what is reserved, and does not look at the debt.
func (a *Account) left() int64 { return max(0, min(a.shares(), a.inHand())) }

// shares is left without the long limits. It is 0 before the first Adopt, where no limit binds, while the windows are
// shut (plans.Windows.Shut) or the account is early, and once it is forgotten.
func (a *Account) shares() int64 {
	if a.forgotten || a.early || a.windows == nil || a.windows.Shut {
		return 0
	}
	least := shape.Unbounded
	for i := range a.spans { // a plain loop, since each call for a key comes by
		switch s := &a.spans[i]; {
		case s.Bound == shape.Unbounded:
		case s.by == nil:
			least = min(least, s.Bound-s.Used)
		default:
			least = min(least, s.left())
		}
	}
	if least == shape.Unbounded {
		return 0
	}
	return max(0, least)
}

// left returns how many permits the span leaves now.
func (s *span) left() int64 { return s.by.Left(&s.Count) }

// Reserve keeps n permits for a caller that has to wait for the provider's.
func (a *Account) Reserve(n int64) { a.reserved += n }

// MayReturn reports whether permits are reserved, and n more could be issued now if these came back: they do if their
// callers do not get the provider's.
func (a *Account) MayReturn(n int64) bool { return a.reserved > 0 && a.left() >= queue.Sum(n, a.debt) }

// Reserves reports whether permits are reserved.
func (a *Account) Reserves() bool { return a.reserved > 0 }

// Unreserve ends a reservation of n permits without issuing them. w is the caller's waiter; nil if it has none, as when it
// did not wait for the key's.
func (a *Account) Unreserve(w *queue.Waiter, n int64) {
	a.reserved -= n
	a.trade.ended(w, n, false)
}

// Confirm issues n reserved permits, if the windows that run now allow them. The reservation ends
// either way. w is as for Unreserve.
func (a *Account) Confirm(w *queue.Waiter, n int64) bool {
	a.reserved -= n
	ok := a.debt == 0 && a.left() >= n
	if a.trade.ended(w, n, ok); ok {
		a.Charge(n)
	}
	return ok
}

// HandEnds returns the earliest monotonic instant at which what is in hand of a long limit ends: with its window or, of a
// limit that counts by parts, with its part. It is clock.Forever if permits are taken of no long limit.
func (a *Account) HandEnds() (at int64) {
	at = clock.Forever
	for b := range a.binding {
		if !b.Whole {
			at = min(at, b.End-a.windows.Offset)
		}
	}
	return at
}

// Lapses returns the monotonic instant from which on reserved permits of the key may be gone; clock.Forever if they stay.
// A caller that gets the provider's permits then or later may find that it lacks the key's. It is the instant at which what
// is in hand ends (HandEnds), or one in the past if some next window might hold fewer permits than are reserved for all
// callers together. total returns what the shares of all instances hold in a window.
func (a *Account) Lapses(total func(quota.Window) int64) (from int64) {
	for s := range a.bounded {
		if each := total(s.Window) / int64(max(1, a.windows.Lending.Instances)); a.reserved > min(s.own(), each) {
			return math.MinInt64
		}
	}
	return a.HandEnds()
}

// Charge books n issued permits. They count in the running window of every length.
func (a *Account) Charge(n int64) {
	for i := range a.spans { // plain loops, as in shares
		a.spans[i].Used += n
	}
	for i := range a.budgets {
		if b := &a.budgets[i]; b.binds {
			b.used += n
		}
	}
}

// Refund takes n permits out again that were issued in an epoch; false if that is over.
func (a *Account) Refund(n int64, epoch uint32) bool {
	if epoch != a.epoch {
		return false
	}
	a.Charge(-n)
	return true
}

// Uncharge takes n permits out again that were taken of a Front, and not issued. epoch is the account's when the front was
// opened, and windows are those that the front named. If a window has ended since, they are taken out of the front's
// windows that still run.
func (a *Account) Uncharge(n int64, epoch uint32, windows *plans.Windows) {
	if a.Refund(n, epoch) {
		return
	}
	for i := range a.spans {
		if s := &a.spans[i]; slices.Contains(windows.Running, s.Window) {
			s.Used -= n
		}
	}
}

// Crowded reports whether the account's Front has refused calls at the same time, in the windows that run.
func (a *Account) Crowded() bool { return a.crowded }

// Epoch returns the epoch of permits that are issued now. Refund asks for it.
func (a *Account) Epoch() uint32 { return a.epoch }

// Span returns the start and the end of the time that the running windows of all limits have in common, in corrected
// wall time.
func (a *Account) Span() (start, end int64) {
	end = clock.Forever
	for s := range a.bounded {
		start, end = max(start, s.Window.Start()), min(end, s.Window.End())
	}
	for b := range a.binding {
		start, end = max(start, b.Start), min(end, b.End)
	}
	return start, end
}

// Opens returns the earliest monotonic instant at which n permits of the own share may come if there is no news. If the
// share of a window that lacks permits is 0, begins is asked for the corrected wall time from which there is one; it returns
// clock.Forever for never, and 0 if that is not known. The first of these that applies decides. Before the first Adopt it is
// now. Without a share for ever, it is clock.Forever; with one that begins later, it is the opening then. While the windows
// are shut or the account is early, it is the next opening of any window. If some windows leave less than the sum of n and
// the debt, it is the opening after the last of them ends. If only etcd has to be asked, it is now. Otherwise it is the next
// opening of any window, and clock.Forever if nothing is limited. What is reserved counts only for whether etcd has to be
// asked.
func (a *Account) Opens(n, now int64, begins func() int64) int64 {
	if a.windows == nil {
		return now
	}
	all := queue.Sum(n, a.debt)
	end, lacks := a.SpentUntil(all)
	own, from := shape.Unbounded, int64(0)
	for s := range a.bounded {
		if s.left() < all {
			end, own = max(end, s.Window.End()), min(own, s.own())
		}
	}
	if own <= 0 {
		from = begins()
	}
	switch {
	case from == clock.Forever:
		return from
	case from > a.windows.Over:
		return a.windows.OpensAfter(max(end, from))
	case a.early || a.windows.Shut:
	case end > 0:
		return a.windows.OpensAfter(end)
	case lacks:
		return now // as soon as etcd answers
	}
	return a.windows.Opens(now)
}

// lendAgain returns the end, in corrected wall time, of the window after which others may lend n permits that they did not lend
// before. It is the shortest one that runs. But if vain says that an ask brought nothing in the whole window before, others
// have none left of a longer one either in which this share leaves too few: then it is the longest of these. 0: none runs.
func (a *Account) lendAgain(n int64, vain bool) (end int64) {
	s := a.shortest()
	if s == nil {
		return 0
	}
	end = s.Window.End()
	if !vain {
		return end
	}
	n = queue.Sum(n, a.debt)
	for s := range a.bounded {
		if s.Bound-s.Used < n {
			end = max(end, s.Window.End())
		}
	}
	return end
}

// retry returns when a caller that is refused is worth trying again where others may lend: after the window that lendAgain
// names (next), or when the own share has permits (own), but not before the limits let the fleet have them (least).
func retry(next, own, least int64) int64 { return max(min(next, own), least) }

// Retry returns when a caller of n permits that is refused is worth trying again, where others may lend: a monotonic
// instant. own is what Opens says of them, and least what Eta does.
func (a *Account) Retry(n, own, least int64) int64 {
	return retry(a.windows.OpensAfter(a.lendAgain(n, a.trade != nil && a.trade.guest.InVain())), own, least)
}

// Own returns the own share of the windows that run, the smallest of them.
func (a *Account) Own() int64 {
	own := shape.Unbounded
	for s := range a.bounded {
		own = min(own, s.own())
	}
	return own
}

// Forget has the zero Account take the place of this one, if nothing of it counts any more by the windows that run, and
// reports whether it does. From then on this account has nothing left, whatever it adopts: whoever still comes to it can
// issue, lend and pay nothing, since that would count in no other account.
func (a *Account) Forget(windows *plans.Windows) bool {
	if a.over(windows) && !a.asked(windows.Running) {
		a.forgotten = true
	}
	return a.forgotten
}

// over reports whether the zero Account says the same as this one: nothing is owed or reserved, nothing was used in a
// window that still runs, and nothing is in hand. Nor is an account over while etcd is asked for permits of a long limit,
// or before etcd may be asked again for one that it had too little of: a new account would ask at once.
func (a *Account) over(windows *plans.Windows) bool {
	return a.debt == 0 && a.reserved == 0 &&
		!slices.ContainsFunc(a.spans, func(s span) bool { return s.Used > 0 && s.Window.End() > windows.Over }) &&
		!slices.ContainsFunc(a.budgets, func(b long) bool {
			return b.state == handedOut || b.Until() > windows.Over && (b.again > windows.Over-windows.Offset || b.holds())
		})
}

// Use is what is booked of one window.
type Use struct {
	Window   quota.Window
	Bound    int64 // permits that may be issued in it, borrowed ones included
	Used     int64 // permits issued in it, and lent to others
	Borrowed int64 // permits of Bound that others have lent to this instance
	Lent     int64 // permits of Used that this instance has lent
	Paid     int64 // permits of Used that have paid debts
}

// Booked returns what is booked of each window.
func (a *Account) Booked() []Use {
	all := make([]Use, 0, len(a.spans))
	for i := range a.spans {
		s := &a.spans[i]
		all = append(all, Use{s.Window, s.Bound, s.Used, s.borrowed, s.lent, s.paid})
	}
	return all
}
