package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// This file says what becomes of the permits that are left when the first waiter in the queue wants more.
//
// Where permits are lent, others may lend what the waiter lacks, and nobody knows whether they will. So for a while the
// first waiter, unless its call is large, has a claim: nobody else gets what is left. When the claim has ended, other
// callers may pass the waiter: they take of what is left the permits that it cannot use. It keeps its place.
//
// A call for more than the share is large, any other one small. A large call is served by loans, and from
// this instance's share with what small calls will not need. Two rules see to it that it is served at all:
//
//   - While it waits, the small calls of its own instance leave it a part of their permits (leaveLocked). These
//     parts add up until they are enough.
//   - If it is still the first waiter after as many windows as it wants shares, and no large call was served
//     meanwhile, it stands (standsLocked): each other instance leaves it an equal part of what it wants, in the next
//     window.

// claimed is how long the claim of the first waiter lasts: the time in which loans come, or a tenth of the window if
// that is less.
const claimed = 100 * time.Millisecond

// claimOf returns how long the claim of the first waiter lasts in a window of a length.
func claimOf(length time.Duration) time.Duration { return min(claimed, length/10) }

// claim is that of the first waiter.
type claim struct {
	of    *queue.Waiter // nil if nobody waits
	since int64         // monotonic instant at which it became the first, or the window began if that is later
	edges int64         // at how many windows' beginnings it was the first
}

// beside counts the permits that are kept for waiters that are passed. Callers that pass them, from behind them in the
// queue or as newcomers, may have the rest of the permits held: see besideLocked.
type beside struct {
	// shut says that callers that pass get nothing: a claim runs, nobody may pass, more than mostPassed are passed,
	// the limits have changed, or no window lacks permits for a waiter.
	shut    bool
	passed  int     // waiters that are passed
	spans   []int64 // permits that are kept for them, by the index of the span in ledger.spans
	budgets []int64 // the same, by the index in ledger.budgets
}

// mostPassed bounds the waiters that are passed. If more would be, nobody passes: otherwise each call would look
// at the whole of a long queue.
const mostPassed = 64

func (b *beside) reset(l *ledger) {
	b.shut, b.passed = false, 0
	b.spans = append(b.spans[:0], make([]int64, len(l.spans))...)
	b.budgets = append(b.budgets[:0], make([]int64, len(l.budgets))...)
}

// noteHeadLocked notes who is the first waiter.
func (g *Gate) noteHeadLocked() {
	if w := g.mu.queue.Head(); w != g.mu.claim.of {
		g.mu.claim = claim{of: w, since: g.mu.last}
	}
}

// claimEndsLocked returns the monotonic instant at which the claim of the first waiter ends. It is clock.Forever if
// nobody waits, or nobody may pass. Where nothing can be borrowed now (borrowsLocked), such as by an instance that is
// alone, nothing is claimed: it is no later than the present.
func (g *Gate) claimEndsLocked() int64 {
	switch {
	case g.mu.claim.of == nil || !g.passesLocked():
		return clock.Forever
	case !g.borrowsLocked():
		return g.mu.claim.since
	default:
		return g.mu.claim.since + int64(claimOf(g.mu.ledger.shortest().Window.Length))
	}
}

// passesLocked reports whether a waiter that lacks permits may be passed. It may not where nothing can be lent,
// now or later (mayBorrowLocked): to an instance that is alone others may lend once they have joined. Nor where permits
// accrue gradually: there those that are left now add up until they are enough for it.
func (g *Gate) passesLocked() bool { return !g.planLocked().Gradual() && g.mayBorrowLocked() }

// claimsLocked reports whether nobody gets what is left past the first waiter now: its claim runs, or it may not be
// passed. For a large one it is false: it leaves small ones what they will want. If nobody waits it is true.
func (g *Gate) claimsLocked() bool {
	of := g.mu.claim.of
	return g.claimEndsLocked() > g.mu.last && (of == nil || !of.Large())
}

// looksAgainLocked returns the monotonic instant at which to serve the queue again: when the claim of the first waiter
// ends or, if it is large, when small calls may leave it more. It is clock.Forever if neither is ahead.
func (g *Gate) looksAgainLocked() int64 {
	at := g.claimEndsLocked()
	switch of := g.mu.claim.of; {
	case at > g.mu.last:
		return at
	case of.Large() && g.mu.held > 0:
		return g.mu.last + int64(g.mu.ledger.shortest().Window.Length/10)
	}
	return clock.Forever
}

// passLocked notes that callers pass the waiter w, which lacks permits. It returns false if nobody may pass.
//
// The waiter lacks permits in some windows. Until the last of these has ended it can use no permits of any window, so
// callers that pass may have those of the windows that end by then. In windows that end later it can still use some:
// there passLocked keeps as many permits as it wants.
func (g *Gate) passLocked(w *queue.Waiter) bool {
	b, l, taken, ends := &g.mu.beside, &g.mu.ledger, g.takenLocked(), int64(0)
	b.passed++
	many := b.passed > mostPassed
	changed := len(b.spans) != len(l.spans) || len(b.budgets) != len(l.budgets) // the limits, since beside was reset
	if b.shut = b.shut || many || changed || g.claimsLocked(); b.shut {
		return false
	}
	want := w.N()
	if w.Large() {
		want = queue.Sum(want, g.forSmallLocked(w.Class()))
	}
	for i := range l.spans {
		if s := &l.spans[i]; s.Bound != shape.Unbounded && s.left()-taken-b.spans[i] < want {
			ends = max(ends, s.Window.End())
		}
	}
	for i := range l.budgets {
		if u := &l.budgets[i]; u.binds && !u.InFlight && !u.couldHave(queue.Sum(w.N(), taken+b.budgets[i])) {
			ends = max(ends, u.End)
		}
	}
	if b.shut = ends == 0; b.shut { // no window lacks permits for it: it has to wait for a moment only
		return false
	}
	for i := range l.spans {
		if l.spans[i].Window.End() > ends {
			b.spans[i] = queue.Sum(b.spans[i], w.N())
		}
	}
	for i := range l.budgets {
		if l.budgets[i].End > ends {
			b.budgets[i] = queue.Sum(b.budgets[i], w.N())
		}
	}
	return true
}

// besideLocked returns how many of the permits in g.mu.held callers that pass the waiters may have.
func (g *Gate) besideLocked() int64 {
	b, l, taken, room := &g.mu.beside, &g.mu.ledger, g.takenLocked(), g.mu.held
	if b.shut {
		return 0
	}
	if b.passed > 0 && g.mu.claim.of.Large() && g.claimEndsLocked() > g.mu.last {
		room = min(room, g.forSmallLocked(g.mu.claim.of.Class()))
	}
	for i := range l.spans {
		if s := &l.spans[i]; b.spans[i] > 0 && s.Bound != shape.Unbounded {
			room = min(room, s.left()-taken-b.spans[i])
		}
	}
	for i := range l.budgets {
		if u := &l.budgets[i]; b.budgets[i] > 0 && u.binds {
			room = min(room, u.hand()-taken-b.budgets[i])
		}
	}
	return max(0, room)
}

// withholdLocked takes back what a segment has for newcomers: the permits are held again.
func (g *Gate) withholdLocked(s *Segment) {
	kept := s.withhold()
	g.mu.published -= kept
	g.mu.held += kept
}

// openLocked puts those of the permits held that newcomers may have into a segment that has none.
func (g *Gate) openLocked(s *Segment) {
	room := g.mu.held
	if g.mu.queue.Head() != nil {
		room = g.besideLocked()
	}
	if room > 0 {
		g.mu.held -= room
		g.mu.published += room
		s.left.Store(room)
	}
}

// largeLocked reports whether a call for n permits is large: this instance never has so many of its own at once, so that
// only loans serve it.
func (g *Gate) largeLocked(n int64) bool {
	p := g.planLocked()
	return n > 1 && p.Lending.Borrows && p.Known && n > p.RoomLater()
}

// noteLargeLocked notes a call that waits or was refused, if it is large: its n permits are not counted as those of
// small calls. If n is negative, the call does not wait any more, and is taken out again.
func (g *Gate) noteLargeLocked(large bool, n int64) {
	b := &g.mu.borrower
	if !large {
		return
	}
	if b.small == nil {
		small := b.calls // until now all were small
		b.small = &small
	}
	b.large += n
}

// smallLocked returns the flow of small calls.
func (g *Gate) smallLocked() *lending.Flow {
	if b := &g.mu.borrower; b.small != nil {
		return b.small
	}
	return &g.mu.borrower.calls
}

// forSmallLocked returns how many permits a large call of class c leaves to small ones in the window that runs. That
// is the forecast of small calls; less b.left, once the claim is over; and at most the rest of the share, if the large
// call stands. A critical call leaves nothing.
func (g *Gate) forSmallLocked(c queue.Class) int64 {
	s, ok := g.sceneLocked()
	if !ok || c == queue.Critical {
		return 0
	}
	keep := g.smallWantLocked(s)
	if g.claimEndsLocked() <= g.mu.last { // before, loans may still come: small calls need not leave it any
		keep -= g.mu.borrower.left
	}
	if g.mu.borrower.standsIn(s.Window) {
		keep = min(keep, s.own()-g.ownIssuedLocked(s))
	}
	return max(0, keep)
}

// smallWantLocked returns how many permits small calls will want in the window that runs.
func (g *Gate) smallWantLocked(s scene) int64 {
	q := &g.mu.queue
	// Large(Sheddable) has the large ones of all classes: it counts a class and those above it.
	return int64(math.Ceil(g.smallLocked().Forecast(s.phase, s.length, q.Permits()-q.Large(queue.Sheddable))))
}

// noteLargeServedLocked notes that a large call gets n permits, where there are room. Those of the n that small calls
// will want are taken off b.left, what small calls have left to large ones. While the call stands b.left stays: others
// have left it permits too.
func (g *Gate) noteLargeServedLocked(n, room int64) {
	b := &g.mu.borrower
	if s, ok := g.sceneLocked(); ok {
		if b.servedIn = s.Window.Index; !b.standsIn(s.Window) {
			b.left -= max(0, min(b.left, n-(room-g.smallWantLocked(s))))
		}
	}
	b.largeIssued += n
}

// leaveLocked has small calls leave a part of what they had to the large call that still waits. ended is the window
// that is over: leaveLocked adds to b.left one in leaves of what small calls used in it. length is that of the next
// window in milliseconds, and limit the fleet's limit there: b.left never exceeds it.
func (g *Gate) leaveLocked(ended quota.Window, length float64, limit int64) {
	b := &g.mu.borrower
	if c := g.mu.claim.of; c == nil || !c.Large() || b.small == nil {
		return
	}
	if b.stood == ended.Index && b.stood == b.servedIn { // a large call stood and was served: small ones have lost enough
		b.left = 0
		return
	}
	b.left = min(limit, b.left+int64(math.Ceil(b.small.Used()*length/leaves)))
}

// leaves says what small calls leave to a large one: one in leaves of the permits that they had in the window before.
// They do not lose all of that, since those that wait are served in the next window.
const leaves = 6

// ownIssuedLocked returns how many permits were issued to own callers in the window, for calls of any size. In a window
// in which a large call stands, or stood, it leaves out what large calls got, since others have left them that.
func (g *Gate) ownIssuedLocked(s scene) int64 {
	n := s.Used - s.lent + g.takenLocked()
	if b := &g.mu.borrower; b.stood == s.Window.Index {
		n -= b.largeIssued
	}
	return n
}

// Before reports whether large calls of the instance one come before those of the instance other in a window. Each
// window has an order of all instances by chance. Without an order large calls would block each other, each one with
// permits that another one lacks.
func Before(one, other string, w quota.Window) bool {
	salt := uint64(w.Index) * 0x9e3779b97f4a7c15
	return lending.Chance(one, salt) < lending.Chance(other, salt)
}

// standsIn reports whether a large call stands in a window, and was not served yet: others were asked to leave it a part
// of that window.
func (b *borrower) standsIn(w quota.Window) bool { return b.stood == w.Index && b.largeIssued == 0 }

// standsLocked returns how many permits the first waiter wants if it is a large call that stands from the next window
// on: others are to leave it a part of that. Otherwise it returns 0. By this rule
// large calls of an instance get, per window, what small ones leave of its share or, if that is more, one in standing
// of the limit.
func (g *Gate) standsLocked(s scene) int64 {
	c := &g.mu.claim
	if c.of == nil || !c.of.Large() {
		return 0
	}
	shares := sharesIn(c.of.N(), max(1, s.own()))
	since := s.Window.Index + 1 - max(g.mu.borrower.stood, g.mu.borrower.servedIn) // windows without a large call
	small := int64(math.Ceil(g.smallLocked().Used() * s.length))                   // in the window before
	due := max(1, s.own()-small, s.Total/standing)                                 // a window
	if c.edges < max(1, shares-1) || since < max(shares, sharesIn(c.of.N(), due)) {
		return 0
	}
	return c.of.N()
}

// standing is the part of the limit, one in standing, that large calls of an instance get where all of it is used, also
// if small calls of the instance want its whole share.
const standing = 10

// sharesIn returns how many shares n permits are, rounded up.
func sharesIn(n, share int64) int64 { return (n + share - 1) / share }
