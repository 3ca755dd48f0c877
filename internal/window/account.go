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

// Account counts the permits that this instance issues for one key. The zero Account has issued none, and has nothing
// left. The provider is the key with the empty name. Its account is part of a ledger, which also brings its schedules
// (span.by) and calls in flight up to date. Use the ledger's methods adopt, charge, refund and pay: the Account's Adopt,
// Charge, Refund and Pay do not bring schedules and calls in flight up to date.
//
// After the windows have changed, Adopt is called before anything is issued by the new ones. What calls had of a Front is
// booked before that, in the windows that the account still has (Front.Shut). An Account is not safe for concurrent use.
//
// A permit is booked by Charge, and taken out again by Refund. One of a key whose caller still waits for the provider's
// is kept by Reserve, and then booked by Confirm or let go by Unreserve. One that a call had of the Front is booked by
// Front.Shut or Front.More, and taken out by Uncharge if the provider gave none.
type Account struct {
	windows *plans.Windows // those of the latest Adopt; nil before the first
	spans   []span         // shortest first
	budgets []long         // the long limits, which the policy calls budgets
	// early says that corrected time was set back to before the start of a window that the account had entered, in a span
	// or in a long limit. Nothing is issued until that window begins again.
	early bool
	// forgotten says that the account is retired (Forget): another one counts for the key from then on, and this one has
	// nothing left for good.
	forgotten bool
	// laid is how many permits lay in the key's Front when Open or More last laid some into it, or when More last booked
	// what calls had of it. What lies there now is less by what calls have had since, which is still to be booked.
	laid uint8
	// atOnce says that the Front has refused several calls at once since the latest Adopt. The next refusal may then make
	// the key quiet: see partQuiet.
	atOnce bool
	// epoch is raised whenever a span enters another window or is forgotten, when a long limit enters another window or
	// binds anew, and when etcd was restored. Refund takes a permit back only in the epoch in which it was issued: later
	// some window of it may have ended, although it may still count in a longer one. Once something was issued it is not 0,
	// until it wraps around after years: so 0 can stand for permits that were not issued, as in shadow mode.
	epoch    uint32
	debt     int64 // permits that calls have cost beyond those issued, to be paid first
	reserved int64 // permits of a key that are kept for callers that still wait for the provider's
	// before tells of the shortest limit's window before the one that runs. If it is 0 or more, callers used so many permits
	// in it; it is 0 also if that is not known. If it is below 0, callers used none, a debt was still owed at the end, and
	// -before permits had paid of it (paidLast). It is one field because a key's memory is bounded.
	before int64
	guests loans // what was lent to each guest, as this instance has told it
	hosts  loans // what each host has lent, as it has told this instance
	// trade is what a key's callers that wait want, and what others are asked for; nil until the key lacks permits or is
	// asked for some. It is always nil in a provider's account, whose trade is its gate's (borrower, in lending.go).
	trade *keyTrade
}

// span counts the permits of an account in one window: the running one of its length or, while the account is early, one
// that has not begun. Its Bound is this instance's own share and what it borrowed; its Used is the sum of what callers
// used, what was lent, and what has paid debts. If the limit is removed, the span stays while its permits count (dropEnded), since the limit
// may come back.
type span struct {
	shape.Count
	borrowed int64 // permits of Bound that others have lent to this instance
	lent     int64 // permits of Used that this instance has lent
	paid     int64 // permits of Used that have paid debts
	// by has the schedules of a provider's limit that has another shape than aligned windows, or pacing. It is nil for all
	// other limits, as for every limit of a key: all of their permits may be issued at once.
	by *shape.Schedules
}

// Windows returns the windows of the latest Adopt; nil before the first.
func (a *Account) Windows() *plans.Windows { return a.windows }

// Adopt moves the account to the windows that run. share is asked for this instance's own share of each: it returns
// shape.Unbounded where no limit binds the key. budgets is asked for the long limits, if there may be any.
func (a *Account) Adopt(windows *plans.Windows, share func(quota.Window) int64, budgets func() []protocol.Budget) {
	a.begin(windows, share)
	if len(windows.Budgets) > 0 || len(a.budgets) > 0 {
		a.adoptBudgets(budgets()) // it returns 0, since a key has no limit in flight
	}
	a.dropEnded(func(s *span) int64 { return s.Window.End() })
	a.guests.end(windows.Over)
	a.hosts.end(windows.Over)
}

// begin moves the spans to the windows that run. A window's index never goes back, whatever the clock
// does.
func (a *Account) begin(windows *plans.Windows, share func(quota.Window) int64) {
	was := a.Shortest().Length
	a.windows, a.early, a.atOnce = windows, false, false
	for i := range a.spans {
		a.spans[i].Bound = shape.Unbounded
	}
	for _, w := range windows.Running {
		s := a.move(w, was)
		s.Bound = queue.Sum(share(w), s.borrowed)
	}
	if a.Shortest().Length != was {
		a.before = 0
	}
	a.trade.follow(a)
}

// move returns the span with w's length, and moves it to w. A span that is in a later window stays
// there: then the account is early. was is the length of the account's shortest window before this Adopt.
func (a *Account) move(w quota.Window, was time.Duration) *span {
	i, there := slices.BinarySearchFunc(a.spans, w, func(s span, w quota.Window) int { return cmp.Compare(s.Window.Length, w.Length) })
	if !there {
		a.spans = slices.Insert(a.spans, i, span{Count: shape.Count{Window: quota.Window{Length: w.Length, Index: math.MinInt64}}})
	}
	s := &a.spans[i]
	switch {
	case w.Index > s.Window.Index:
		if w.Length == was {
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

// calledBefore returns Account.before for a span that leaves its window for w. debt is what the account owes. If w is not
// the next window, what callers used in the one before w is not known, and the result is 0.
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

// own is the part of Bound that is this instance's own share, where a limit binds.
func (s *span) own() int64 { return s.Bound - s.borrowed }

// dropEnded forgets a span if no limit binds in it, no window of its length runs, and its permits have stopped to count.
// The function until returns the corrected wall time at which they stop: the window's end or, under some shapes, later.
func (a *Account) dropEnded(until func(*span) int64) {
	was := len(a.spans)
	a.spans = slices.DeleteFunc(a.spans, func(s span) bool { return s.Bound == shape.Unbounded && !a.runs(&s) && until(&s) <= a.windows.Over })
	if len(a.spans) < was {
		a.epoch++
	}
}

// runs reports whether a window of the span's length runs.
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

// shortest returns the span of the shortest window in which the account is limited. While the account is early that window
// may not have begun: the method begun tells. If the account is limited in none, it is the span of the shortest window that runs, and nil if
// none runs. A window may run that does not limit this account: if only other keys have a limit of its length.
func (a *Account) shortest() *span {
	for i := range a.spans { // a plain loop, as in leftOfShares
		if s := &a.spans[i]; s.Bound != shape.Unbounded {
			return s
		}
	}
	if a.windows == nil || len(a.windows.Running) == 0 {
		return nil
	}
	return a.span(a.windows.Running[0])
}

// Shortest returns the window of shortest; the zero Window if there is none.
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
	return max(0, a.leftOfShares()-a.reserved)
}

// leftInAll returns what the short and the long limits leave. What is reserved is part of it, and a debt is not taken off.
func (a *Account) leftInAll() int64 { return max(0, min(a.leftOfShares(), a.inHand())) }

// leftOfShares is leftInAll without the long limits. It is 0 before the first Adopt, where no limit binds, while the
// windows are shut (plans.Windows.Shut) or the account is early, and once it is forgotten.
func (a *Account) leftOfShares() int64 {
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

// Reserve keeps n permits, of those that are Left, for a caller that has to wait for the provider's. One Confirm or one
// Unreserve ends that.
func (a *Account) Reserve(n int64) { a.reserved += n }

// MayReturn reports whether n permits could be issued now, after the debt, if all that is reserved came back. Permits come
// back if their callers do not get the provider's. It is false if none are reserved.
func (a *Account) MayReturn(n int64) bool {
	return a.reserved > 0 && a.leftInAll() >= queue.Sum(n, a.debt)
}

// Reserves reports whether permits are reserved.
func (a *Account) Reserves() bool { return a.reserved > 0 }

// Unreserve ends a reservation of n permits without issuing them. w is the caller's waiter, by which the trade recognizes a
// large call; it is nil for a call that may not wait.
func (a *Account) Unreserve(w *queue.Waiter, n int64) {
	a.reserved -= a.trade.ended(w, n, false)
}

// Confirm ends a reservation of n permits, and issues them unless a debt is owed, or the windows that run now or what is in
// hand of the long limits leave fewer. After the bounds have become less, those whose callers confirm first get what is
// left. w is as for Unreserve.
func (a *Account) Confirm(w *queue.Waiter, n int64) bool {
	ok := a.debt == 0 && a.leftInAll() >= n
	if a.reserved -= a.trade.ended(w, n, ok); ok {
		a.Charge(n)
	}
	return ok
}

// HandEnds returns the earliest monotonic instant at which what is in hand of a long limit ends: with its window or, of a
// limit that counts by parts of time, with its part. It is clock.Forever if no limit that binds takes its permits from
// etcd: no long limit binds, or all that do are Whole.
func (a *Account) HandEnds() (at int64) {
	at = clock.Forever
	for b := range a.binding {
		if !b.Whole {
			at = min(at, b.End-a.windows.Offset)
		}
	}
	return at
}

// Lapses returns the monotonic instant from which on reserved permits of the key may be gone, if there is no news. A caller
// that gets the provider's permits then or later may find that it lacks the key's. That is when what is in hand ends
// (HandEnds) or, if that is earlier, when a window ends after which the next one might hold fewer permits than are reserved
// for all callers together. total returns what the shares of all instances hold in a window, and 0 if that is not
// known: then a next window might hold none.
func (a *Account) Lapses(total func(quota.Window) int64) (from int64) {
	from = a.HandEnds()
	for s := range a.bounded {
		if each := total(s.Window) / int64(max(1, a.windows.Lending.Instances)); a.reserved > min(s.own(), each) {
			from = min(from, s.Window.End()-a.windows.Offset)
		}
	}
	return from
}

// Charge books n issued permits in every span, also of limits that were removed, and in each long limit that binds. With n
// below 0 it takes them out.
func (a *Account) Charge(n int64) {
	for i := range a.spans { // plain loops, as in leftOfShares
		a.spans[i].Used += n
	}
	for i := range a.budgets {
		if b := &a.budgets[i]; b.binds {
			b.used += n
		}
	}
}

// Refund takes n permits out again that were issued in an epoch. If that is not the account's epoch any more, it does
// nothing and returns false. It pays no debt. large says that Called has noted them for a large call.
func (a *Account) Refund(n int64, epoch uint32, large bool) bool {
	if epoch != a.epoch {
		return false
	}
	if a.Charge(-n); large && a.trade != nil {
		a.trade.claim.gaveBack(n)
	}
	return true
}

// Uncharge takes out again n permits that a call had of a Front but that were not issued, because the provider gave none.
// epoch is the account's when the front was opened, and windows are those that the front named, in which Front.Shut or
// Front.More has booked them. In the same epoch they are taken out wherever they were booked. In a later one they are taken
// out only of the spans that are still in a window which the front named.
func (a *Account) Uncharge(n int64, epoch uint32, windows *plans.Windows) {
	if a.Refund(n, epoch, false) {
		return
	}
	for i := range a.spans {
		if s := &a.spans[i]; slices.Contains(windows.Running, s.Window) {
			s.Used -= n
		}
	}
}

// RefusedAtOnce reports whether the key's Front has refused several calls at once since the latest Adopt.
func (a *Account) RefusedAtOnce() bool { return a.atOnce }

// Epoch returns the epoch of permits that are issued now. Refund asks for it.
func (a *Account) Epoch() uint32 { return a.epoch }

// Common returns the start and the end of the time that the running windows of all limits that bind have in common, in
// corrected wall time; 0 and clock.Forever if no limit binds.
func (a *Account) Common() (start, end int64) {
	end = clock.Forever
	for s := range a.bounded {
		start, end = max(start, s.Window.Start()), min(end, s.Window.End())
	}
	for b := range a.binding {
		start, end = max(start, b.Start), min(end, b.End)
	}
	return start, end
}

// Opens returns a monotonic instant before which n permits of the own share cannot come, for a call that cannot have them
// now, if there is no news. A window lacks permits if it leaves fewer than n plus the debt; end is when the last of those has
// ended, the windows of long limits among them. The first case that applies decides:
//
//   - before the first Adopt: now;
//   - a short window that lacks permits has a share of 0: begins tells the corrected wall time from which there is a share.
//     If it says clock.Forever (never), so does Opens. If it says a time to come, Opens returns the opening after that, or
//     after end if that is later. If it says 0 (not known) or a time that is over, the cases below decide;
//   - the windows are shut, or the account is early: the next opening of any window;
//   - some window lacks permits: the opening after end;
//   - only etcd has to be asked for permits: now, since they come as soon as it answers;
//   - nothing lacks but what is reserved: the next opening of any window; clock.Forever if nothing is limited.
//
// What is reserved counts only for whether etcd has to be asked.
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

// lendAgain returns when others, who lend less than n permits now, may lend them: the end of the shortest window, in
// corrected wall time; 0 if none runs. vain says that nothing came in the last window in which others were asked. Then each
// limit that leaves fewer than n plus the debt here is taken to be spent there too, and the result is the latest end of the
// windows of these limits, if that is later.
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

// retry returns when a refused caller should try again: at next or at own, whichever is earlier, but not before least.
func retry(next, own, least int64) int64 { return max(min(next, own), least) }

// Retry returns the monotonic instant at which a refused caller of n permits should try again where others may lend: after
// the window that lendAgain names, or when the own share may bring them, but not before the limits let the fleet have them.
// own is what Opens says of them; clock.Forever where the own share never brings any. least is the instant before which
// neither loans nor etcd can bring them.
func (a *Account) Retry(n, own, least int64) int64 {
	return retry(a.windows.OpensAfter(a.lendAgain(n, a.trade != nil && a.trade.guest.InVain())), own, least)
}

// Own returns the smallest own share of the windows in which the account is limited; shape.Unbounded if there is none. Long
// limits do not count.
func (a *Account) Own() int64 {
	own := shape.Unbounded
	for s := range a.bounded {
		own = min(own, s.own())
	}
	return own
}

// Forget retires the account if a new one in its place could exceed no limit (over), and no loan that is under way or may
// still be made would be lost (asked). It reports whether the account is retired. From then on it has nothing left, whatever it adopts: whoever still comes to it can issue, lend and pay nothing, since the
// account that comes next would not know of it.
func (a *Account) Forget(windows *plans.Windows) bool {
	if a.over(windows) && !a.asked(windows.Running) {
		a.forgotten = true
	}
	return a.forgotten
}

// Used reports whether the account has adopted windows, or is retired. One that is not used has issued nothing; it may owe
// a debt.
func (a *Account) Used() bool { return a.windows != nil || a.forgotten }

// over reports whether a new account in place of this one exceeds no limit: nothing is owed or reserved, no call goes on
// whose reservation has lapsed (claim.lapse), nothing was used in a window that still runs, and nothing is in hand. Borrowed
// permits that nobody used, and forecasts, may be lost. Nor is an account over while etcd is asked for permits of a long
// limit, or before it may be asked again (long.again), since it had too few or does not answer: a new account would ask at
// once.
func (a *Account) over(windows *plans.Windows) bool {
	return a.debt == 0 && a.reserved == 0 && !a.trade.pends() &&
		!slices.ContainsFunc(a.spans, func(s span) bool { return s.Used > 0 && s.Window.End() > windows.Over }) &&
		!slices.ContainsFunc(a.budgets, func(b long) bool {
			return b.state == handedOut || b.Until() > windows.Over && (b.again > windows.Over-windows.Offset || b.holds())
		})
}

// Use is what is booked of one window.
type Use struct {
	Window   quota.Window
	Bound    int64 // permits that may be issued in it, borrowed ones included; shape.Unbounded if no limit of this length binds
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
