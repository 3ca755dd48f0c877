package window

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// This file is the line in which callers wait: who of them may have permits, and who may pass the first one. The rules for
// that are explained in claim.go.

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
	lends   bool    // permits are lent in the windows that run, and this instance may borrow some
	borrows bool    // lends, and another instance has permits to lend
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

// any reports whether a waiter may be passed; large says whether it is large. Of several waiters, of which one is large if
// large is set, it reports whether at least one may be.
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

// Newcomer returns how many permits a newcomer of class c may have: all that is held if nobody of its class or a higher one
// waits, and else what besides returns, which is nothing from the beginning of a window until Begin. The caller takes off
// what is kept from class c. Newcomer sets the room, by which Fits goes until Begin, Served or Pass changes it.
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
// clock.Forever. It does not tell of permits that come sooner: whoever brings those has the line served. Where
// the line has a trade, the claim keeps the instant for Account.Again.
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

// Served notes that w's call got n permits. w stands in the line, or is a newcomer's. If the call is large, and permits are
// lent, the credit of large calls (claim.left) is cut to the limit, and then pays for those of the n permits that small calls
// would have wanted. While the first waiter stands the credit stays as it is, whichever call is served: other instances have
// left permits too. Where nothing is lent now, the call does not count as served (claim.servedIn).
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

// Pass decides whether callers may pass w, which was not served, and sets the room of those behind it. It returns false if
// nobody behind w gets anything until the line is served again.
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
// the window. It is 0 for a critical call, and while this instance may borrow nothing. Two things lower it, both of the
// line's first waiter, which may be another call:
//
//   - In the window in which that one stands, no more is left to small calls than this instance's share or, if that is less,
//     the limit without what that one wants. What small calls have had of the window is taken off.
//   - There, and elsewhere once its claim is over, the credit of large calls (claim.left) is taken off.
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
