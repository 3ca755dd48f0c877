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

// Where permits are lent, the first in line may want more than there is, and nobody knows whether
// others lend the rest. What is left is its for a while: the claim. After that those behind it take
// what it cannot use, and it keeps its place.
//
// A call for more than the share is large. It is served by loans, besides what small calls will
// want. If it is still the first after as many windows as it wants shares, and none was served
// meanwhile, it stands: then each other instance leaves it an equal part of the next window. And while
// one waits, the small calls of its own instance leave it a part of theirs, which adds up until it is
// enough.

// claimed is for how long the first in line has a claim: the time in which loans come, or a tenth of the
// window if that is less.
const claimed = 100 * time.Millisecond

// claim is that of the first in line.
type claim struct {
	of    *queue.Waiter
	since int64 // monotonic: it is the first from then on, or the window began
	edges int64 // of windows at which it was the first
}

// beside is what those behind the queue may have: permits held, but for those that somebody in it can
// still use.
type beside struct {
	shut    bool    // nothing: a claim runs, or nobody passes here
	passed  int     // how many are passed
	spans   []int64 // permits kept for them, by span and
	budgets []int64 // by budget
}

// mostPassed bounds how many waiters that lack permits are looked at: not each of a long queue each
// time.
const mostPassed = 64

func (b *beside) reset(l *ledger) {
	b.shut, b.passed = false, 0
	b.spans = append(b.spans[:0], make([]int64, len(l.spans))...)
	b.budgets = append(b.budgets[:0], make([]int64, len(l.budgets))...)
}

// noteHeadLocked notes who is the first in line.
func (g *Gate) noteHeadLocked() {
	if w := g.mu.queue.Head(); w != g.mu.claim.of {
		g.mu.claim = claim{of: w, since: g.mu.last}
	}
}

// claimEndsLocked returns when the claim of the first in line ends; clock.Forever if it does not.
func (g *Gate) claimEndsLocked() int64 {
	switch {
	case g.mu.claim.of == nil || !g.passesLocked():
		return clock.Forever
	case !g.borrowsLocked(): // no loans come
		return g.mu.claim.since
	default:
		return g.mu.claim.since + int64(min(claimed, g.mu.ledger.shortest().Window.Length/10))
	}
}

// passesLocked reports whether callers may be passed that lack permits. Nobody is where nothing can be
// lent, or where permits that are left now add up.
func (g *Gate) passesLocked() bool { return !g.planLocked().Gradual() && g.mayBorrowLocked() }

// claimsLocked reports whether the first in line has a claim on all that is left. A large one has none:
// it leaves small ones what they will want.
func (g *Gate) claimsLocked() bool {
	of := g.mu.claim.of
	return g.claimEndsLocked() > g.mu.last && (of == nil || !of.Large())
}

// looksAgainLocked returns when the claim of the first in line ends or, if it is large, small calls may
// leave it more; clock.Forever if neither is ahead.
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

// passLocked has others pass a waiter that lacks permits, and keeps those that it can use before the
// windows end of which it lacks some. It returns false if nobody may pass.
func (g *Gate) passLocked(w *queue.Waiter) bool {
	b, l, taken, ends := &g.mu.beside, &g.mu.ledger, g.takenLocked(), int64(0)
	b.passed++
	many := b.passed > mostPassed
	others := len(b.spans) != len(l.spans) || len(b.budgets) != len(l.budgets) // limits have changed
	if b.shut = b.shut || many || others || g.claimsLocked(); b.shut {
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
	if b.shut = ends == 0; b.shut { // it lacks some for a moment only
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

// besideLocked returns how many of the permits held may pass those that wait.
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

// withholdLocked takes what the segment holds for newcomers back.
func (g *Gate) withholdLocked(s *Segment) {
	kept := s.withhold()
	g.mu.published -= kept
	g.mu.held += kept
}

// openLocked puts what newcomers may have into a segment that holds nothing.
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

// largeLocked reports whether a call for n permits is large: no share of this instance holds so many, so
// that only loans serve it.
func (g *Gate) largeLocked(n int64) bool {
	p := g.planLocked()
	return n > 1 && p.Lending.Borrows && p.Known && n > p.RoomLater()
}

// noteLargeLocked notes n permits of calls that wait or were refused, if these are large: those that came
// (or, if n is negative, have gone) are not what small calls want.
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

// smallLocked is the flow of calls that are not large.
func (g *Gate) smallLocked() *lending.Flow {
	if b := &g.mu.borrower; b.small != nil {
		return b.small
	}
	return &g.mu.borrower.calls
}

// forSmallLocked returns how many permits a large call of a class leaves to small ones in the window that
// runs: what they will want; if it stands, at most the share. Nothing is kept from critical calls.
func (g *Gate) forSmallLocked(c queue.Class) int64 {
	s, ok := g.sceneLocked()
	if !ok || c == queue.Critical {
		return 0
	}
	keep := g.smallWantLocked(s)
	if g.claimEndsLocked() <= g.mu.last { // or the loans that come would not be waited for
		keep -= g.mu.borrower.left
	}
	if g.mu.borrower.standsIn(s.Window) {
		keep = min(keep, s.own()-g.smallIssuedLocked(s))
	}
	return max(0, keep)
}

// smallWantLocked returns how many permits small calls will want in the window that runs.
func (g *Gate) smallWantLocked(s scene) int64 {
	q := &g.mu.queue
	return int64(math.Ceil(g.smallLocked().Forecast(s.phase, s.length, q.Permits()-q.Large(queue.Sheddable))))
}

// noteLargeServedLocked notes that a large call has n of the permits that there are.
func (g *Gate) noteLargeServedLocked(n, room int64) {
	b := &g.mu.borrower
	if s, ok := g.sceneLocked(); ok {
		if b.servedIn = s.Window.Index; !b.standsIn(s.Window) {
			b.left -= max(0, min(b.left, n-(room-g.smallWantLocked(s))))
		}
	}
	b.largeIssued += n
}

// leaveLocked has small calls leave a part of what they had in the window that ends to the large one that
// still waits.
func (g *Gate) leaveLocked(ended quota.Window, length float64, limit int64) {
	b := &g.mu.borrower
	if c := g.mu.claim.of; c == nil || !c.Large() || b.small == nil {
		return
	}
	if b.stood == ended.Index && b.stood == b.servedIn { // small ones have lost enough
		b.left = 0
		return
	}
	b.left = min(limit, b.left+int64(math.Ceil(b.small.Used()*length/leaves)))
}

// leaves says what small calls leave to a large one: of what they had in the window before, one permit in
// so many. They lose about half of that, since those that wait are served in the next window.
const leaves = 6

// smallIssuedLocked returns how many permits were issued to own callers in the window, but for those that others
// have left to a large call.
func (g *Gate) smallIssuedLocked(s scene) int64 {
	n := s.Used - s.lent + g.takenLocked()
	if b := &g.mu.borrower; b.stood == s.Window.Index {
		n -= b.largeIssued
	}
	return n
}

// Before reports whether large calls of one instance come before those of another one in a window. Each
// window has an order of all instances by chance, or large calls would block each other: each of them with
// permits that the others lack.
func Before(one, other string, w quota.Window) bool {
	salt := uint64(w.Index) * 0x9e3779b97f4a7c15
	return lending.Chance(one, salt) < lending.Chance(other, salt)
}

// standsIn reports whether others have left a part of a window to a large call that was not served yet.
func (b *borrower) standsIn(w quota.Window) bool { return b.stood == w.Index && b.largeIssued == 0 }

// standsLocked returns how many permits the first in line wants if it stands now: it is large, and
// others shall leave it a part of the next window; else 0. So it gets at most a share in the long run,
// and a tenth of the limit.
func (g *Gate) standsLocked(s scene) int64 {
	c := &g.mu.claim
	if c.of == nil || !c.of.Large() {
		return 0
	}
	shares := sharesIn(c.of.N(), max(1, s.own()))
	since := s.Window.Index + 1 - max(g.mu.borrower.stood, g.mu.borrower.servedIn) // windows without a large call
	if c.edges < max(1, shares-1) || since < max(shares, sharesIn(c.of.N(), max(1, s.Total/standing))) {
		return 0
	}
	return c.of.N()
}

// standing is the part of the limit, one in standing, that large calls of an instance get where all is
// used.
const standing = 10

// sharesIn returns how many times a share n is, rounded up.
func sharesIn(n, share int64) int64 { return (n + share - 1) / share }
