package window

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// This file is what the gate does as a guest: it tells its Trade what callers want and what is left, and
// when to look what to ask others for. What it does as a host is in host.go, and permits lent and borrowed
// are booked in loan.go.

const (
	milli = float64(time.Millisecond)
	// lookEvery is the time between two looks of a gate that may lack permits soon, and
	// lookSeldom of one that has enough. A gate is quietAfter without calls.
	lookEvery, lookSeldom = 5 * time.Millisecond, 50 * time.Millisecond
	// lookAgain is the time between two looks of a key for which nothing is asked, while callers wait or are
	// refused: there may be thousands of such keys.
	lookAgain  = 20 * time.Millisecond
	quietAfter = 100 // in milliseconds
)

// borrower is the Trade of a provider, with what its gate notes for it.
type borrower struct {
	Trade
	owners   int   // that share the shortest limit
	look     int64 // when Look is called next; clock.Forever: when Arm says so
	awaited  int   // callers that wait for a first permit: see Await
	lackedAt int64 // when in the window a call was first refused or had to wait; clock.Forever: none
	LendingCounts
}

// LendingCounts are permits and asks since the beginning.
type LendingCounts struct {
	Lent, Borrowed int64 // permits
	Asks           int64
	Fruitless      int64 // windows in which this instance asked and borrowed nothing
	// FirstLoans are the windows in which permits were borrowed after a call was refused or
	// had to wait. FirstLoanTime sums the times from the first such call to these permits.
	FirstLoans    int64
	FirstLoanTime time.Duration
	LastLoans     Loans // of the window before
}

// counts are those of the gate and of its Trade.
func (b *borrower) counts() LendingCounts {
	n := b.LendingCounts
	n.Asks = b.asks
	return n
}

// noteCallsLocked brings the calls to the end of the segment that has ended.
func (g *Gate) noteCallsLocked(at int64) {
	b, c := &g.mu.borrower, g.callersLocked()
	b.take(float64(at)/milli, came{
		all: g.mu.ledger.issued - g.mu.ledger.paid + g.takenLocked() + g.Refused() + c.Waiting, large: b.claim.larges + g.RefusedLarge() + c.Large,
		critical: g.Called(queue.Critical) + c.Critical, sheddable: g.Called(queue.Sheddable) + c.Sheddable,
	}, c)
}

// callersLocked are those that wait.
func (g *Gate) callersLocked() Callers { return CallersOf(&g.mu.queue) }

// lineLocked returns the queue as a line.
func (g *Gate) lineLocked() Line {
	s, ok := g.sceneLocked()
	if ok = ok && g.planLocked().Lending.Borrows; !ok {
		s = scene{account: &g.mu.ledger.Account}
	}
	line := Line{
		trade: &g.mu.borrower.Trade, queue: &g.mu.queue, scene: s, lends: ok, borrows: ok && !s.alone(), passes: g.passesLocked(),
		now: g.mu.last.Mono, held: g.mu.held, taken: g.takenLocked(),
	}
	line.kept, _ = g.mu.ledger.kept()
	line.open = g.mu.published - line.taken
	if l := &g.mu.ledger; l.plan.Pacing.Even && !g.mu.stale && l.debt == 0 {
		line.unpaced = max(0, min(l.unpaced(), l.inHand())-line.taken)
	}
	return line
}

// passesLocked says which waiters that lack permits may be passed. None may where nothing can be lent, now or later
// (mayBorrowLocked): to an instance that is alone others may lend once they have joined. Where permits accrue
// gradually only large calls may: for a small one those that are left now add up until they are enough.
func (g *Gate) passesLocked() passing {
	switch {
	case !g.mayBorrowLocked():
		return passNone
	case g.planLocked().Gradual():
		return passLarge
	default:
		return passAll
	}
}

// mayPassLocked reports whether one of those that wait may be passed.
func (g *Gate) mayPassLocked() bool {
	return g.passesLocked().any(g.mu.queue.Large(queue.Sheddable) > 0)
}

// largeLocked reports whether a call for n permits is large: this instance hardly ever has so many of its own at once, so
// that its share alone does not serve it.
func (g *Gate) largeLocked(n int64) bool {
	return n > 1 && g.mayBorrowLocked() && n > g.planLocked().RoomLater()
}

// noteWindowLocked notes that another window of the shortest limit runs.
func (g *Gate) noteWindowLocked() {
	b, a, ended := &g.mu.borrower, g.mu.ledger.shortest(), g.mu.ledger.ended
	if a == nil || a.Window == b.window {
		return
	}
	before := b.window
	if a.Window.Length != before.Length {
		b.restart()
		g.noteCallsLocked(g.mu.last.Mono) // calls are counted from here on
	}
	if b.guest.Asked() && ended.Borrowed == 0 {
		b.Fruitless++
	}
	limit := g.mu.ledger.limit(a.Window)
	if 10*max(limit.Instances-b.owners, b.owners-limit.Instances) > b.owners { // others may have more than before
		b.owners, b.guest = limit.Instances, lending.Guest{}
	}
	b.LastLoans = ended.net()
	if a.Window.Length != before.Length || a.Window.Index != before.Index+1 { // a window has passed unseen
		b.LastLoans = Loans{}
	}
	if before.Length != 0 { // else calls that were refused before anything was known count yet
		b.lackedAt = clock.Forever
	}
	b.enter(&g.mu.ledger.Account, a.Window, ended)
}

// Borrows reports whether permits can be borrowed now.
func (g *Gate) Borrows() bool {
	g.mu.Lock()
	defer g.unlock()
	return g.borrowsLocked()
}

// borrowsLocked reports whether permits can be borrowed now.
func (g *Gate) borrowsLocked() bool {
	s, ok := g.sceneLocked()
	return ok && g.planLocked().Lending.Borrows && !s.alone()
}

// sceneLocked returns the window in which permits are lent and borrowed now; ok is false if
// none are.
func (g *Gate) sceneLocked() (s scene, ok bool) {
	l := &g.mu.ledger
	if g.mu.closed || g.mu.stale || l.plan.Shut || !l.lendable() {
		return s, false
	}
	limit, fleet := l.limit(l.shortest().Window), &l.plan.Lending
	of := plans.Fleet{Total: limit.Limit, Instances: max(limit.Instances, fleet.Instances), Owners: limit.Instances}
	return l.scene(of, fleet.Hash, g.mu.last.Mono), true
}

// armLocked has Look called at an instant, or before.
func (g *Gate) armLocked(at int64) {
	b, l := &g.mu.borrower, &g.planLocked().Lending
	if (l.Borrows || l.Lends) && at < b.look {
		b.look = at
		g.Arm(at)
	}
}

// lackLocked has Look called soon, since permits are wanted.
func (g *Gate) lackLocked() {
	if g.planLocked().Lending.Borrows {
		g.armLocked(g.mu.last.Mono)
	}
}

// noteLackLocked notes that a call is refused or has to wait now.
func (g *Gate) noteLackLocked() {
	g.mu.borrower.lackedAt = min(g.mu.borrower.lackedAt, g.mu.last.Mono)
	g.lackLocked()
}

// Borrow takes a note of a host: the sum of what it has lent to this instance in the note's windows. It adds what exceeds
// the notes before it, up to the limit, and returns how much that is. It adds nothing if other windows run here, or if
// nothing can be borrowed now.
func (g *Gate) Borrow(at clock.Instant, host string, loan protocol.Note) int64 {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.closed {
		return 0
	}
	g.currentLocked(at)
	g.settleLocked()
	n := g.mu.ledger.borrow(host, loan)
	if n > 0 {
		b := &g.mu.borrower
		if b.Borrowed += n; b.lackedAt != clock.Forever && g.mu.ledger.shortest().borrowed == n { // the first in the window
			b.FirstLoans++
			b.FirstLoanTime += time.Duration(g.mu.last.Mono - b.lackedAt)
		}
	}
	g.rebuildLocked(at)
	return n
}

// Await says that a caller waits for a first permit (1), or does no longer (-1): as long as
// this instance has no share it borrows one.
func (g *Gate) Await(at clock.Instant, change int) {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.borrower.awaited += change; change > 0 {
		g.currentLocked(at)
		g.lackLocked()
	}
}

// first reports whether the first permit is wanted of an instance without a share: a caller
// waits for it, or was refused.
func (b *borrower) first(s *span) bool {
	return s != nil && s.Bound == 0 && (b.awaited > 0 || b.lackedAt != clock.Forever && !b.guest.Asked())
}

// Look returns what to ask others for, nil for nothing, and when to look again: clock.Forever if
// Arm says when. It serves open asks.
func (g *Gate) Look(at clock.Instant) (ask *Asking, next int64) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	b, l, next := &g.mu.borrower, &g.mu.ledger, clock.Forever
	b.look = clock.Forever
	s, ok := g.sceneLocked()
	if !ok {
		return nil, clock.Forever
	}
	g.noteCallsLocked(g.mu.last.Mono)
	if l.lends() {
		next = b.serve(&s, g.lendsToLocked, func(a asked) {
			if s, ok := g.sceneLocked(); ok { // the one before may have moved it
				g.lendLocked(at, s, a)
			}
		})
	}
	if l.plan.Lending.Borrows {
		var soon int64
		ask, soon = g.askLocked(s)
		next = min(next, soon)
	}
	b.look = next
	return ask, next
}

// askLocked returns what to ask for now, and when to look again.
func (g *Gate) askLocked(s scene) (ask *Asking, next int64) {
	b, l, callers := &g.mu.borrower, &g.mu.ledger, g.callersLocked()
	h := s.has(stock{
		left: l.unpaced() - g.takenLocked(), kept: g.segment.Load().floor, issued: s.issued(g.takenLocked()), debt: l.debt, newcomer: s.own() == 0,
	}, callers)
	if b.first(s.span) {
		h.Waiting++ // one permit says it: who waits for the first may never take more
	}
	if s.alone() {
		return nil, clock.Forever
	}
	if at := l.asksFrom(g.wantedLocked()); g.mu.last.Mono < at {
		return nil, at
	}
	if what, ok := b.ask(&s, h, callers, l.debt); ok {
		ask = s.asking(what, b.salt(s.hash))
	}
	if b.calls.Silent() > quietAfter && h.Waiting == 0 {
		return ask, clock.Forever
	}
	if l.debt > 0 && !g.wantedLocked() { // little is left of the window
		return ask, g.mu.last.Mono + int64(lookEvery)
	}
	wait := b.calls.Enough(h) / 2
	return ask, g.mu.last.Mono + min(max(int64(wait*milli), int64(lookEvery)), int64(lookSeldom))
}

// wantedLocked reports whether callers want permits in this window: some wait, or were refused.
func (g *Gate) wantedLocked() bool {
	b := &g.mu.borrower
	return g.mu.queue.Len() > 0 || b.awaited > 0 || b.lackedAt != clock.Forever
}

// lackForDebtLocked has Look called for a debt as soon as others are asked for it.
func (g *Gate) lackForDebtLocked() {
	at := g.mu.last.Mono
	if _, ok := g.sceneLocked(); ok {
		at = max(at, g.mu.ledger.asksFrom(g.wantedLocked()))
	}
	if g.planLocked().Lending.Borrows {
		g.armLocked(at)
	}
}

// lentRoom returns how many permits one request can have under a plan with what can be borrowed; 0 if
// nothing can.
func lentRoom(p *plans.Plan) int64 {
	if !p.Lending.Borrows {
		return 0
	}
	return p.RoomIn(func(l *plans.Limit) (permits, burst int64) {
		if l.Permits == shape.Unbounded {
			return shape.Unbounded, l.Burst
		}
		return l.Limit, l.Burst
	})
}
