package window

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// This file says what becomes of the permits that are left when the first waiter of a line wants more. It is the one
// place for that, for the provider's queue and for the line of each key.
//
// Where permits are lent, others may lend what the waiter lacks, and nobody knows whether they will. So for a while
// the first waiter has a claim: nobody of its class or of a lower one gets what is left. But if its call is large and not
// critical, small calls get what they will want even then. The claim begins anew with each window. When it has ended,
// other callers may pass the waiter: they take of what is left the permits that it cannot use. It keeps its place. Where
// permits come gradually (pacing) only a large waiter is passed: for a small one what is left adds up until it is enough.
//
// Where others may lend, a call for more than one permit is large if this instance's share alone can hardly serve it in
// some limit's window. Each limit gives a number:
//
//   - a provider's limit: this instance's share now, or what the share often is later if that is more
//   - a key's limit: this instance's share now, or an equal part of the limit if that is more
//   - a provider's long limit: all of the limit; a key's gives none
//
// A call for more than the least of these numbers is large (Plan.RoomLater, Account.MostSmall). Any other call is small.
// The rules for large calls are for those that may wait. One that may not wait takes what is there. If it gets its permits
// it counts as small, and as large if it is refused.
//
// A large call is served by loans, and by that part of this instance's share that small calls will not need. Two rules
// serve it where small calls want all:
//
//   - While it is the first waiter, the small calls of its own instance leave it a part of their permits
//     (claim.leave). These parts add up, as the credit of large calls (claim.left), until they are enough.
//   - It may stand: then each other instance that has a share is asked to leave it an equal part of what it wants, in
//     the next window (Trade.stands), and to lend as much in the running one if it has that to spare. An instance with a
//     large call that stands in that window too leaves the part only if the waiter's instance comes before it in the
//     window's order (Before). The small calls of the waiter's own instance get no more of that window than the waiter
//     leaves of the limit. The credit is kept from them from the window's beginning, and not only once the claim is over:
//     otherwise small calls that wait would take all before loans come.
//
// The waiter stands if no debt is owed and two things are so. A window has begun since it became the first waiter: so loans
// could have served it. It may have callers of a higher class before it when the window begins, which are served then. And
// the latest large call of this instance that was served, or stood, is long enough ago: at least
// k windows if the first waiter wants k shares, and more if small calls leave little of the share. How long it has waited
// does not count beyond that: a caller that gives up, and comes again before the window ends, loses one window at most.
//
// A call that is large for a key has to gather the key's permits and the provider's in one window. If the provider's come
// later, those of the key may be gone (claim.lapse), and it starts again at the end of the key's line.

// claimed is how long the claim of the first waiter lasts at most: in windows of a second or more loans mostly come by
// then. In a window that begins with a guard it is counted from the guard's end, since nobody is asked before (Line.ends).
const claimed = 100 * time.Millisecond

// lasts returns how long the claim lasts in window w: claimed, or a tenth of the window if that is less. Where the first
// waiter stands it may be half of the window: loans take as long as in longer windows, and others have left it theirs.
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
	// higher class come before it, it is not `first`, and may have left unnoticed: so large is only compared, and never looked
	// into.
	large *queue.Waiter
	// largeClass is the class of large's call. While it waits, no waiter of its class or of a lower one is the first.
	largeClass queue.Class
	// entered: since large was the first waiter for the first time a window has begun, or another window has become the
	// shortest. It says nothing if large is nil.
	entered bool
	beside

	small *lending.Flow // all calls but the large ones that waited or were refused; nil until one of those comes
	// larges counts permits of large calls since the Trade began, less those that came back. For a provider it counts
	// those that its queue issued; Gate.RefusedLarge has those refused. For a key it counts those refused, and those that
	// were reserved and then issued, from when they are issued.
	larges int64
	// issued is how many permits of the running window large calls got, less those that came back. For a provider: what
	// its queue gave them. For a key a call counts once its permits are reserved or, if they were reserved in an earlier
	// window, once they are issued.
	issued   int64
	servedIn int64         // index of the latest window in which a large call was served that is not in pending: see lastServed
	left     int64         // credit of large calls: permits that small calls have left them, and that none has used yet
	stood    int64         // the index of the latest window of which others were asked to leave a part to a large call
	waits    bool          // a large call waits, the first or another one
	pending  []pendingCall // large calls of a key for which permits are reserved, and not issued yet
}

// pendingCall is a large call that its key's line has served: permits of the key are reserved for it. If they are not
// issued in the end, it was not served.
type pendingCall struct {
	waiter   *queue.Waiter
	servedIn int64 // the index of the window in which they were reserved
	left     int64 // permits that the call took off claim.left, or that were forgotten since (leave)
	reserved int64 // permits that are reserved for it in Account.reserved: 0 once they have lapsed (lapse)
}

// ended notes that the n permits of a key that were reserved for the call of the waiter w were issued, or that they will
// not be. If they will not be, and the call is in pending, it was not served after all. A call that is not in pending,
// such as a small one or one that the line did not serve, changes nothing. running is the window that runs. ended returns how
// many of the n permits were still reserved.
func (c *claim) ended(w *queue.Waiter, n int64, issued bool, running quota.Window) (reserved int64) {
	i := slices.IndexFunc(c.pending, func(p pendingCall) bool { return p.waiter == w })
	if i < 0 {
		return n
	}
	p := c.pending[i]
	c.pending = slices.Delete(c.pending, i, i+1)
	switch counted := p.servedIn == running.Index; { // in c.issued
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

// lapse ends the reservations for more than share permits that calls in pending have from windows before w, which runs now,
// and returns how many permits those were. Window w hardly holds them, and they would keep all of it from other callers,
// here and elsewhere. Such a call is served if enough are there once it has the provider's permits.
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
	c.issued = max(0, c.issued-n) // a key's call that became large only after its line had served it was never counted here
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

// beside counts the permits that are kept for waiters that are passed. Callers that pass them, from behind them in the
// line or as newcomers, may have the rest of the permits held: see Line.besides.
type beside struct {
	// shut: callers that pass get nothing until the line is served again. It is set when a window begins, when the lending of
	// a key ends, and by Pass(w) if
	//   - nobody may pass the first waiter, or w;
	//   - the first waiter is small, and its claim runs;
	//   - more than mostPassed are passed;
	//   - the number of limits has changed (fits).
	shut    bool
	passed  int     // waiters that are passed, and the one at which Pass has set shut
	spans   []int64 // permits that are kept for them, by the index of the span in Account.spans
	budgets []int64 // the same, by the index in Account.budgets
}

// mostPassed bounds the waiters that are passed: whoever has more of them before it gets nothing. The gate stops there, so
// that a long queue costs it no more. A key's line goes on, since each waiter may have to be refused.
const mostPassed = 64

func (b *beside) reset(a *Account) {
	b.shut, b.passed = false, 0
	b.spans = append(b.spans[:0], make([]int64, len(a.spans))...)
	b.budgets = append(b.budgets[:0], make([]int64, len(a.budgets))...)
}

// fits reports whether the account has as many limits as when beside was reset. If not, the counts are of other limits.
// A plan that replaces one limit by another goes unnoticed until the line is served.
func (b *beside) fits(a *Account) bool {
	return len(b.spans) == len(a.spans) && len(b.budgets) == len(a.budgets)
}

// Line is where callers wait for permits of a provider or of a key, at one instant. The gate makes one of its queue,
// and Account.Line one of a key's. What lasts longer is in the claim of its Trade.
//
// Whoever serves it calls Begin, and then for each waiter, in order, Fits. After that Served is called for a waiter that
// gets its permits, and Pass for one that waits on. After waiters were taken out, and before the claim is asked anything,
// noteHead or Account.LineLeft notes who is the first now.
//
// A Line is used under the lock under which it was made, the gate's or that of the key's state, and no longer. held,
// unpaced and taken are copies of the owner's counts, and room is the Line's own. Served adds what it serves to taken,
// and takes it off held, unpaced and room; whoever books that in the account takes it off taken again.
type Line struct {
	trade   *Trade // nil while nothing can be borrowed of a key: then nobody passes anybody
	queue   *queue.Queue
	scene           // if lends is false only its account is set
	lends   bool    // this instance may borrow permits in the windows that run
	borrows bool    // there is also somebody to borrow from now
	passes  passing // which waiters may be passed
	now     int64   // monotonic
	// taken are permits not in the account's counts yet: taken of the gate's segment, or served just now; of a key, reserved.
	taken int64
	held  int64 // permits that may be issued to callers of the line
	// open are permits that newcomers may take without the lock, as besides has said: those in the gate's segment. They are
	// not in held. A key has none.
	open int64
	kept int64 // those of held that are kept for critical calls; a key has none
	room int64 // those of held that the next waiter, or a newcomer, may have; see roomOf for a large call
	// reserves says that the line is of a key: the permits of a call that is served are reserved before they are issued.
	// See claim.ended.
	reserves bool
	// unpaced are permits that may be issued to a large call that passes nobody: those held, and those that pacing has
	// not released yet. It is 0 without pacing, as for a key.
	unpaced int64
}

// passing says which waiters that lack permits may be passed.
type passing int

const (
	passNone  passing = iota // this instance may borrow nothing, also if others join
	passLarge                // those whose call is large
	passAll
)

// any reports whether a waiter may be passed, or one of several. large says whether it is large, or one of them is.
func (p passing) any(large bool) bool { return p == passAll || p == passLarge && large }

// Begin notes that the waiters will be served from the first one on: nobody is passed yet, and all that is held is
// room.
func (l *Line) Begin() {
	if l.room = l.held; l.trade != nil {
		l.noteHead()
		l.trade.claim.reset(l.account)
	}
}

// Entered notes that w was added to the waiters. It does not serve w, but sets what callers behind it may have (Pass).
func (l *Line) Entered(w *queue.Waiter) {
	if l.queue.Len() == 1 {
		l.Begin()
	}
	l.noteHead()
	l.Pass(w)
}

// Newcomer returns how many permits a newcomer of class c may have. The caller takes off what is kept from its class. If
// nobody of class c or a higher one waits, that is all that is held; otherwise it is what besides returns, which is nothing
// from the beginning of a window until Begin. Newcomer sets the room, by which Fits goes until Begin, Served or Pass
// changes it.
func (l *Line) Newcomer(c queue.Class) int64 {
	if l.room = l.held; l.queue.Ahead(c) > 0 {
		l.room = l.besides()
	}
	return l.room
}

// noteHead notes who is the first waiter.
func (l *Line) noteHead() {
	if l.trade != nil {
		l.trade.claim.head(l.queue, l.now)
	}
}

// ends returns the monotonic instant at which the claim of the first waiter ends. It is clock.Forever if nobody waits,
// or nobody may pass that waiter. Where nothing can be borrowed now, such as by an instance that is alone, nothing is
// claimed: the instant is then no later than the present.
func (l *Line) ends() int64 {
	switch {
	case l.trade == nil || l.trade.claim.first == nil || !l.passes.any(l.trade.claim.first.Large()):
		return clock.Forever
	case !l.borrows:
		return min(l.trade.claim.since, l.now)
	default:
		return max(l.trade.claim.since, l.opens()) + int64(l.trade.claim.lasts(l.Window))
	}
}

// claims reports whether nobody at all passes the first waiter now: nobody may, or it is small and its claim runs. Small
// calls may pass a large one even while its claim runs. They get what it leaves them (besides), which is nothing if it is
// critical. If nobody waits, claims is true.
func (l *Line) claims() bool {
	at := l.ends()
	return at == clock.Forever || at > l.now && !l.trade.claim.first.Large()
}

// Again returns the monotonic instant at which to serve the line again. While the claim of the first waiter runs, that
// is its end. After that, if the waiter is large and there are permits, held or open, released by pacing or not, it is
// a tenth of the shortest window from now, since small calls may leave it more by then. In all other cases it is
// clock.Forever. It does not tell of permits that come sooner: whoever brings those has the line served. The claim
// keeps the instant for Account.Again.
func (l *Line) Again() (at int64) {
	if at = l.ends(); at <= l.now {
		at = clock.Forever
		if l.trade.claim.first.Large() && max(l.held, l.open, l.unpaced) > 0 {
			at = l.now + int64(l.account.shortest().Window.Length/10)
		}
	}
	if l.trade != nil {
		l.trade.claim.again = at
	}
	return at
}

// Fits reports whether the line's next waiter, or a newcomer, gets n permits of the room. c is the class of its call, and
// kept how many permits are kept from that class. A large call also leaves small ones what they will want.
func (l *Line) Fits(n, kept int64, c queue.Class, large bool) bool {
	if large {
		kept = max(kept, l.forSmall(c))
	}
	return n <= l.roomOf(large)-kept
}

// roomOf returns the permits of which the next waiter, or a newcomer, may have some. Pacing cannot spread the permits of one
// large call. So one that passes nobody may also have those that pacing has not released yet (unpaced).
func (l *Line) roomOf(large bool) int64 {
	if large && l.trade != nil && l.trade.claim.passed == 0 {
		return max(l.room, l.unpaced)
	}
	return l.room
}

// Served notes that w's call got n permits. w stands in the line, or is a newcomer's. If the call is large, the credit
// of large calls (claim.left) is first cut to the limit, and then pays for those of the n permits that small calls would have
// wanted. While the first waiter stands it pays for none, whichever call is served: other instances have left permits too.
func (l *Line) Served(w *queue.Waiter, n int64, large bool) {
	if large && l.trade != nil { // nil if lending has ended since the call was queued as large
		c := &l.trade.claim
		if l.lends {
			took := int64(0)
			if !c.standsIn(l.Window) {
				c.left = min(c.left, l.Total)
				took = max(0, min(c.left, n-(l.roomOf(large)-l.smallWant())))
				c.left -= took
			}
			if l.reserves {
				c.pending = append(c.pending, pendingCall{w, l.Window.Index, took, n})
			} else {
				c.servedIn = l.Window.Index
			}
		}
		c.issued += n
	}
	l.room = max(0, l.room-n)
	l.held = max(0, l.held-n)
	l.unpaced = max(0, l.unpaced-n)
	l.taken += n
}

// Pass notes that callers may pass w, which was not served, and sets the room of those behind it. It returns false if
// nobody further may pass.
//
// The waiter lacks permits in some windows. A large one lacks them also where it would leave small ones too few
// (forSmall); but for a long limit only the permits that it wants itself count. Until the last of these windows has ended
// the waiter can use no permits of any window, so callers that pass may have those of the windows that end by then. In
// windows that end later it can still use some: there Pass keeps as many permits as it wants itself. So it does in all
// windows if w lacks permits in none: w waits for etcd's answer, for permits that are kept for critical calls, or for the
// end of a large first waiter's claim, which holds back all but what small calls will want. Of a limit that counts by parts
// of time Pass keeps as many in any case: what is not issued in a part can be issued in a later one.
func (l *Line) Pass(w *queue.Waiter) bool {
	if l.room = 0; l.trade == nil || l.trade.claim.shut {
		return false
	}
	b, a, ends := &l.trade.claim.beside, l.account, int64(0)
	b.passed++
	if b.shut = b.passed > mostPassed || !b.fits(a) || l.claims() || !l.passes.any(w.Large()); b.shut {
		return false
	}
	want := w.N()
	if w.Large() {
		want = queue.Sum(want, l.forSmall(w.Class()))
	}
	for i := range a.spans {
		if s := &a.spans[i]; s.Bound != shape.Unbounded && s.left()-l.taken-b.spans[i] < want {
			ends = max(ends, s.Window.End())
		}
	}
	for i := range a.budgets {
		if u := &a.budgets[i]; u.binds && !u.ByParts() && !u.couldHave(queue.Sum(w.N(), l.taken+b.budgets[i])) {
			ends = max(ends, u.End)
		}
	}
	for i := range a.spans {
		if a.spans[i].Window.End() > ends {
			b.spans[i] = queue.Sum(b.spans[i], w.N())
		}
	}
	for i := range a.budgets {
		if u := &a.budgets[i]; u.ByParts() || u.End > ends {
			b.budgets[i] = queue.Sum(b.budgets[i], w.N())
		}
	}
	l.room = l.besides()
	return true
}

// besides returns how many of the held permits may go to callers that pass the waiters. While the claim of a large first
// waiter runs, they may have no more of them than it leaves to small calls. What is kept for critical calls is returned too:
// whoever passes takes off what is kept from its class.
func (l *Line) besides() int64 {
	if l.trade == nil {
		return 0
	}
	c, a, room := &l.trade.claim, l.account, l.held
	if c.shut || c.first == nil || !c.fits(a) {
		return 0
	}
	if c.passed > 0 && c.first.Large() && l.ends() > l.now {
		if c.first.Class() == queue.Critical {
			return 0 // it leaves nothing, and may have what is kept for critical calls itself
		}
		room = min(room, queue.Sum(l.forSmall(c.first.Class()), l.kept))
	}
	for i := range a.spans {
		if s := &a.spans[i]; c.spans[i] > 0 && s.Bound != shape.Unbounded {
			room = min(room, s.left()-l.taken-c.spans[i])
		}
	}
	for i := range a.budgets {
		if u := &a.budgets[i]; c.budgets[i] > 0 && u.binds {
			room = min(room, u.hand()-l.taken-c.budgets[i])
		}
	}
	return max(0, room)
}

// forSmall returns how many permits a large call of class c leaves to small ones: as many as these will want in the rest of
// the window. A critical call leaves nothing, nor does any call while this instance may borrow nothing. Two things about
// the line's first waiter, which may be another call, lower it. In the window in which it stands, small calls get no more
// of this instance's share than the waiter leaves of the limit; what own callers have had already counts. There, and once
// its claim is over, the credit of large calls (claim.left) is taken off.
func (l *Line) forSmall(c queue.Class) int64 {
	if !l.lends || c == queue.Critical {
		return 0
	}
	keep, stands := l.smallWant(), l.trade.claim.standsIn(l.Window)
	if stands {
		keep = min(keep, min(l.own(), l.Total-l.trade.claim.first.N())-l.trade.ownIssued(&l.scene, l.taken))
	}
	if stands || l.ends() <= l.now { // else loans may still come: small calls need not leave it any
		keep -= min(l.trade.claim.left, l.Total)
	}
	return max(0, keep)
}

// smallWant returns how many permits small calls will want in the rest of the window: those that wait, and those expected.
func (l *Line) smallWant() int64 {
	// Large(Sheddable) has the large ones of all classes: it counts a class and those above it.
	return int64(math.Ceil(l.trade.small().Forecast(l.phase, l.length, l.queue.Permits()-l.queue.Large(queue.Sheddable))))
}

// head notes who is the first waiter of q at the monotonic instant now, and whether large calls wait. A nil q ends the
// claim. It is called after waiters have left, before the claim is asked anything. Otherwise a Waiter that was the first,
// left, and is used again for another call would go on with the claim of the call before.
func (c *claim) head(q *queue.Queue, now int64) {
	c.waits = q.Large(queue.Sheddable) > 0
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

// restart forgets what was noted by windows, because they have another length now.
func (c *claim) restart() {
	if c.servedIn, c.stood, c.left = 0, 0, 0; c.small != nil {
		c.small = &lending.Flow{}
	}
	for i := range c.pending {
		c.pending[i].servedIn, c.pending[i].left = 0, 0
	}
}

// leave raises the credit of large calls as a window begins, by one in leftPart of the permits for which small calls came
// in the window that has ended, whether they got them or not. It does so if the first waiter is large, or was and has only
// callers of a higher class before it. The credit ends if no large call waits any more, or if one stood in the window that has ended and was served. In both cases, if the large call
// that was served last is still in pending, the credit moves to that call (pendingCall.left), which gives it back if it is
// not served after all (claim.ended). length is that of the window that begins, in milliseconds. small.Begin has been
// called for that window: Used is the rate in the one that has ended.
func (c *claim) leave(ended quota.Window, length float64) {
	switch {
	case !c.waits, // the calls to which small ones have left some are gone
		c.stood == ended.Index && c.stood == c.lastServed(): // a large call stood and was served: small ones have lost enough
		if c.lastServed() > c.servedIn { // the latest may not have been served after all
			p := &c.pending[len(c.pending)-1]
			p.left = queue.Sum(p.left, c.left)
		}
		c.left = 0
	case c.large == nil || c.small == nil:
	default:
		c.left = queue.Sum(c.left, int64(math.Ceil(c.small.Used()*length/leftPart)))
	}
}

// leftPart says what small calls leave to a large one: one in leftPart of the permits for which they came in the window
// before. They do not lose all of that, since those that wait are served in the next window.
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
// except in a window of which others were asked to leave them a part (claim.stood): those came from the others.
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

// stands returns how many permits the first waiter wants if it is a large call that is to stand in the next window:
// each other instance is asked to leave it a part of them there. Otherwise it returns 0. Calls stand seldom. On average
// over the windows large calls get by this at most what small ones leave of the share or, if that is more, one in
// standPart of the limit; and never more than the share.
//
// The share, the limit and the windows are those of the account's shortest limit alone, also for a call that is large by
// a longer one. So large calls may get more of a longer limit than this instance's share of it. Small calls of other
// instances get less then, but the limit holds: a loan counts in all windows. For example, ten instances with 20 in a
// second and 600 in a minute have shares of 2 and 60. Calls for 5 may stand in each third second there, and so get 100 in a
// minute.
func (t *Trade) stands(s *scene) int64 {
	c := &t.claim
	if c.first == nil || !c.first.Large() || s.length-s.phase < askTime || c.standsIn(s.Window) {
		return 0 // if it stands in this window, what it was left may come yet
	}
	share := max(1, s.part())
	shares := sharesIn(c.first.N(), share)
	// windows is how many there are from the one in which a large call last stood, or was served, to the next one.
	windows := s.Window.Index + 1 - max(c.stood, c.lastServed())
	small := int64(math.Ceil(t.small().Used() * s.length)) // what small calls wanted in the window before
	due := max(1, share-small, s.Total/standPart)          // permits for large calls, in each window
	if !c.entered || windows < max(shares, sharesIn(c.first.N(), due)) {
		return 0
	}
	return c.first.N()
}

// askTime is how long an ask takes to come to the hosts, in milliseconds. They drop one that comes after the window's end,
// so a call does not stand if less of the window is left.
const askTime = 25

// standPart bounds what large calls get by standing if small ones want the whole share: one in standPart of the shortest
// limit on average, or the share if that is less.
const standPart = 10

// sharesIn returns how many shares n permits are, rounded up.
func sharesIn(n, share int64) int64 { return (n + share - 1) / share }
