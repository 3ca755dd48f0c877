package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// This comment has the rules for the permits that are left when the first waiter of a line wants more than those: the same
// for the provider's queue and for the line of each key. This file keeps what the rules need to know; line.go applies them.
//
// The claim. Where permits are lent, other instances may lend what the first waiter lacks. Nobody here knows whether they
// will. So for a while the waiter has a claim: what is left is kept for it from callers of its own class and of lower ones.
// A large call that is not critical claims less: small calls still get what they will want. The claim begins anew with each
// window. When it has ended, callers may pass the waiter: they take of what is left the permits that it cannot use. It keeps
// its place. Where permits come gradually (pacing) only a large waiter is passed: for a small one what is left adds up until
// it is enough.
//
// Large calls. Where permits are lent, a call for more than one permit is large if this instance's share alone can hardly
// serve it. Each limit gives a number, and a call for more than the least of them is large (Plan.RoomLater,
// Account.MostSmall):
//
//   - a provider's limit gives this instance's share: the one of now, or the usual one of later windows if that is more
//   - a key's limit gives this instance's share, or an equal part of the limit if that is more
//   - a provider's long limit gives all of the limit, and a key's gives none
//
// Any other call is small. The rules below are for large calls that may wait. One that may not wait takes what is there. The
// counts of calls (claim.small, claim.larges) take it for a small one if it got its permits, and for a large one if it was
// refused.
//
// A large call is served by loans, and by that part of this instance's share that small calls will not need. Where small
// calls want all, two rules serve it:
//
//   - It has a credit. Once it has been the first waiter, the small calls of its own instance leave it a part of their permits
//     in each window (claim.leave), also while callers of a higher class are before it. The parts add up (claim.left) until
//     they are enough.
//   - It may stand in a window. In the window before, each other instance that has a share is asked to leave it an equal part
//     of what it wants in the next one (Trade.stands), and to lend as much in the running one if it has that to spare. While
//     the claim runs in the window in which it stands, the small calls of its own instance get no more than it leaves of the
//     limit. The credit is taken off what they get from that window's beginning; in other windows it is only once the claim
//     is over. Otherwise those that wait would take all before loans come. Large calls of several instances may stand in one
//     window. Each of these instances then leaves a part only to those that come before it in the window's order (Before).
//
// The waiter is to stand in the next window if there is somebody to ask, no debt is owed, no large call stands in the running
// window, enough of that is left for an ask (askTime), and two more things are so:
//
//   - It became the first waiter, and a window has begun since: so loans could have served it. The window counts also if
//     callers of a higher class were before it again when it began.
//   - The latest large call of this instance that was served, or stood, is long enough ago: at least k windows if the waiter
//     wants k shares, and more if small calls leave little of the share (standPart). How long the waiter has waited makes no
//     difference: a caller that gives up, comes again, and is the first before the window ends loses one window at most.
//
// A call that is large for a key has to gather the key's permits and the provider's in one window. If the provider's come
// later, those of the key may be gone (claim.lapse), and it starts again at the end of the key's line.

// claimed is how long the claim of the first waiter lasts at most: in windows of a second or more loans mostly come by
// then. In a window that begins with a guard it is counted from the guard's end, since nobody is asked before (Line.ends).
const claimed = 100 * time.Millisecond

// lasts returns how long the claim lasts in window w: claimed, or a tenth of the window if that is less. Where the first
// waiter stands it is claimed in short windows too, since others have left it permits, and their loans take as long to come
// there as in long ones. Half of the window bounds it, but permits are lent only in windows of which half is longer.
func (c *claim) lasts(w quota.Window) time.Duration {
	if c.standsIn(w) {
		return min(claimed, w.Length/2)
	}
	return min(claimed, w.Length/10)
}

// claim is that of the first waiter of a line, with what is known of the line's large calls. It is in a Trade: the
// gate's, or that of a key's Account. Where it has the index of a window, 0 stands for none: that window was in 1970, and
// only a test is ever in it.
type claim struct {
	first *queue.Waiter // the first waiter; nil if nobody waits
	since int64         // monotonic instant at which it became the first, or the start of the window that was entered since
	again int64         // monotonic instant at which to serve the line again: see Line.Again
	// large is the large waiter that was the first one latest; nil if none was, or if it has surely left. While waiters of a
	// higher class come before it, it is not `first`, and may leave unnoticed: so large is only compared, and never looked
	// into. If its Waiter is then used for another large call, that one may stand a window sooner.
	large *queue.Waiter
	// largeClass is the class of large's call. While it waits, no waiter of its class or of a lower one is the first.
	largeClass queue.Class
	// entered: a window has begun, or another window has become the shortest, after large became the first waiter. It says
	// nothing if large is nil.
	entered bool
	beside

	small *lending.Flow // all calls but the large ones that waited or were refused; nil until one of those comes
	// larges counts the permits of large calls since the Trade began, less those that came back. For a provider these are the
	// permits that its queue has issued; Gate.RefusedLarge counts those refused. For a key they are those refused, and those
	// issued to calls that its line had served as large ones (Account.Called).
	larges int64
	// issued is how many permits of the running window large calls got, less those that came back. For a provider: what
	// its queue gave them. For a key a call counts once its permits are reserved or, if they were reserved in an earlier
	// window, once they are issued.
	issued   int64
	servedIn int64         // of the large calls that were served and are not in pending: the index of the latest's window
	left     int64         // credit of large calls: permits that small calls have left them, and that none has used yet
	stood    int64         // the index of the latest window of which others were asked to leave a part to a large call
	waits    bool          // a large call waits, the first or another one
	pending  []pendingCall // large calls that a key's line has served, and whose permits are neither issued nor given up yet
}

// pendingCall is a large call that has left its key's line with permits of the key reserved for it, which may have lapsed
// since. It counts as served for now, and as not served after all if they are not issued.
type pendingCall struct {
	waiter   *queue.Waiter
	servedIn int64 // the index of the window in which they were reserved
	left     int64 // what the call took off claim.left, and the credit that leave has ended since: ended gives both back
	reserved int64 // permits that are reserved for it in Account.reserved: 0 once they have lapsed (lapse)
}

// pendingOf returns the index in pending of the call of the waiter w; below 0 if it is not there.
func (c *claim) pendingOf(w *queue.Waiter) int {
	return slices.IndexFunc(c.pending, func(p pendingCall) bool { return p.waiter == w })
}

// ended notes that the n permits of a key that were reserved for the call of the waiter w were issued, or that they will
// not be. If they will not be, and the call is in pending, it was not served after all. A call that is not in pending,
// such as a small one or one that the line did not serve, changes nothing. running is the window that runs. ended returns how
// many of the n permits were still reserved.
func (c *claim) ended(w *queue.Waiter, n int64, issued bool, running quota.Window) (reserved int64) {
	i := c.pendingOf(w)
	if i < 0 {
		return n
	}
	p := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	switch counted := p.servedIn == running.Index; { // counted: its permits are in c.issued
	case issued && !counted:
		c.issued += n
	case !issued && counted:
		c.issued -= n
	}
	if issued {
		c.servedIn = max(c.servedIn, p.servedIn)
	} else {
		c.left = queue.Sum(c.left, p.left)
	}
	return p.reserved
}

// lapse ends each reservation of more than share permits that a call in pending has since a window before w. share is the
// least that this instance has of any window that runs; w is the one that has begun. Some window hardly holds such a
// reservation, which would keep all of its permits from other callers, here and elsewhere. Such a call is served if enough
// are there once it has the provider's permits. lapse returns the sum of what was reserved.
func (c *claim) lapse(w quota.Window, share int64) (n int64) {
	for i := range c.pending {
		if p := &c.pending[i]; p.servedIn < w.Index && p.reserved > share {
			n += p.reserved
			p.reserved = 0
		}
	}
	return n
}

// gaveBack notes that n permits came back which a large call got in the window that runs, as it cost less.
func (c *claim) gaveBack(n int64) {
	c.larges -= n
	c.issued -= n
}

// lastServed returns the index of the latest window in which a large call was served, or in which permits were reserved
// for one that is in pending.
func (c *claim) lastServed() int64 {
	at := c.servedIn
	for i := range c.pending {
		at = max(at, c.pending[i].servedIn)
	}
	return at
}

// head notes who is the first waiter of q at the monotonic instant now, and whether large calls wait. A nil q ends the
// claim. It is called after waiters have left, before the claim is asked anything. Otherwise a Waiter that was the first,
// left, and is used again for another call would go on with the claim of the call before.
func (c *claim) head(q *queue.Queue, now int64) {
	if c.waits = q.Large(queue.Sheddable) > 0; !c.waits {
		c.large = nil
	}
	w := q.Head()
	if w == c.first {
		return
	}
	c.first, c.since = w, now
	switch {
	case w != nil && w.Large() && w != c.large:
		c.large, c.largeClass, c.entered = w, w.Class(), false
	case w == nil || !w.Large() && w.Class() >= c.largeClass:
		c.large = nil
	}
}

// enter notes that a window has begun at the monotonic instant start. The claim of the first waiter begins anew. Until
// the line is served nobody passes.
func (c *claim) enter(start int64) {
	c.since, c.issued, c.shut, c.entered = start, 0, true, true
}

// restart forgets the indexes of windows, the rates and the credit, because windows have another length now.
func (c *claim) restart() {
	if c.servedIn, c.stood, c.left = 0, 0, 0; c.small != nil {
		c.small = &lending.Flow{}
	}
	for i := range c.pending {
		c.pending[i].servedIn, c.pending[i].left = 0, 0
	}
}

// leave is called as a window begins. If a large call was the first waiter (claim.large), leave raises the credit of large
// calls by one in leftPart of the permits for which small calls came in the window that has ended, whether they got them or
// not. The credit ends
//
//   - if no large call waits any more: those for which it was left are gone;
//   - if a large call stood in the window that has ended, and was served: small calls have lost enough.
//
// While calls are in pending it is open whether they were served. So unless another large call was served in the window in
// which it stood, the credit that ends is noted at the last of them (pendingCall.left). If that call gets no permits after
// all, ended restores the credit.
//
// length is that of the window that begins, in milliseconds. small.Begin has been called for that window, so small.Used is
// the rate in the one that has ended.
func (c *claim) leave(ended quota.Window, length float64) {
	switch {
	case !c.waits, c.stood == ended.Index && c.stood == c.lastServed():
		if last := len(c.pending) - 1; last >= 0 && (!c.waits || c.lastServed() > c.servedIn) {
			p := &c.pending[last]
			p.left = queue.Sum(p.left, c.left)
		}
		c.left = 0
	case c.large == nil || c.small == nil:
	default:
		c.left = queue.Sum(c.left, int64(math.Ceil(c.small.Used()*length/leftPart)))
	}
}

// leftPart says what small calls leave to a large one: one in leftPart of the permits for which they came in the window
// before. In the end they lose less than that: those that wait get theirs in a later window.
const leftPart = 6

// standsIn reports whether the first waiter is a large call that stands in a window: others were asked to leave a part of
// that window to a large call, and none was served in it yet.
func (c *claim) standsIn(w quota.Window) bool {
	return c.stood == w.Index && c.lastServed() < w.Index && c.first != nil && c.first.Large()
}

// small returns claim.small, or all calls if no large one has waited or was refused.
func (t *Trade) small() *lending.Flow {
	if t.claim.small != nil {
		return t.claim.small
	}
	return &t.calls
}

// ownIssued returns how many permits of the scene's window were issued to own callers, or have paid debts. taken are
// permits that the account has not booked, or has reserved; they count too. Permits of large calls count too,
// except in a window of which others were asked to leave them a part (claim.stood): there they are taken to have come from
// the others.
func (t *Trade) ownIssued(s *scene, taken int64) int64 {
	n := s.issued(taken)
	if c := &t.claim; c.stood == s.Window.Index {
		n -= c.issued
	}
	return n
}

// Before reports whether large calls of the instance one come before those of the instance other in a window. Each
// window has a random order of all instances. Without an order large calls would block each other, each one with
// permits that another one lacks.
func Before(one, other string, w quota.Window) bool { return order(one, other, w) < 0 }

// order compares the places of two instances in a window's order: see Before.
func order(one, other string, w quota.Window) int {
	salt := uint64(w.Index) * 0x9e3779b97f4a7c15
	return cmp.Compare(lending.Chance(one, salt), lending.Chance(other, salt))
}

// stands returns how many permits the first waiter wants if it is a large call that is to stand in the next window: each
// other instance is then asked to leave it a part of them there. Otherwise it returns 0.
//
// Calls stand seldom. What large calls get by it is at most, on average over the windows, what small calls leave of the share
// or, if that is more, one in standPart of the limit. It is never more than the share. Each of these is taken to be one
// permit at least.
//
// The share, the limit and the windows are those of the account's shortest limit alone, also for a call that is large by
// a longer one. So large calls may get more of a longer limit than this instance's share of it. Small calls of other
// instances get less then, but the limit holds: a loan counts in all windows. For example, ten instances with 20 in a
// second and 600 in a minute have shares of 2 and 60. Calls for 5 may stand in each third second there, and so get 100 in a
// minute.
func (t *Trade) stands(s *scene) int64 {
	c := &t.claim
	if c.first == nil || !c.first.Large() || s.rest() < askTime || c.standsIn(s.Window) {
		return 0 // if it stands in this window, what it was left may come yet
	}
	share := max(1, s.part())
	shares := sharesIn(c.first.N(), share)
	// windows is how many windows the next one comes after the latest in which a large call stood or was served.
	windows := s.Window.Index + 1 - max(c.stood, c.lastServed())
	small := int64(math.Ceil(t.small().Used() * s.length)) // what small calls wanted in the window before
	due := max(1, share-small, s.Total/standPart)          // permits for large calls, in each window
	if !c.entered || windows < max(shares, sharesIn(c.first.N(), due)) {
		return 0
	}
	return c.first.N()
}

// askTime is how long an ask takes to come to the hosts, in milliseconds. They drop one that comes after the window's end, or
// in the guard before it. So a call is not to stand if less time is left before that.
const askTime = 25

// standPart bounds what large calls get by standing if small ones want the whole share: one in standPart of the shortest
// limit on average, or the share if that is less.
const standPart = 10

// sharesIn returns how many shares n permits are, rounded up.
func sharesIn(n, share int64) int64 { return (n + share - 1) / share }
