package window

import (
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/safeguard"
)

// Gate issues permits and keeps the queue. Taking from the current Segment
// needs no lock; all else happens under one.
//
// While anybody waits, the segment holds nothing for newcomers: what is left is
// withheld for the queue. So nobody overtakes, and the fast path need not know
// that there is a queue.
//
// Whoever sees first that a window has begun, a caller or the timer of the
// gate's owner, does the work of the boundary.
type Gate struct {
	// segment is the one to take from. Replaced under mu, read by everybody.
	segment atomic.Pointer[Segment]

	shares  Shares
	decided func(w *Waiter, g Grant, v Verdict)
	places  int // bound on the queue's length; 0 for none
	off     safeguard.Set

	mu struct {
		sync.Mutex
		ledger    ledger
		queue     queue
		last      int64 // latest instant handed in; time does not run back
		edge      int64 // when the segment ends, the proof's end left aside
		opens     int64 // before this instant nothing is issued in the running windows
		terms     Terms // as of the segment's beginning
		stale     bool  // the segment is shut for want of a proof, or of the time
		published int64 // permits put into the segment, less what was withheld
		held      int64 // permits of this segment that belong to the queue
		issued    int64 // permits issued in ended segments and to waiters
		forecast  forecast
		ahead     walk // the walk that goes on
		before    walk // where it was before a request that it cannot serve
		adaptive  controller
		judge     int64 // where pacing releases: when all waiters are judged again
		closed    bool
	}
}

// NewGate returns a gate that issues nothing until the first call of Changed.
// places bounds the number of waiters; 0 means no bound.
//
// decided is called once for each waiter that Wait has queued, unless Cancel
// takes it away: with the window and Granted, or with the reason. It is called
// under the gate's lock, in the queue's order: it must not block and must not
// call the gate.
func NewGate(shares Shares, places int, decided func(*Waiter, Grant, Verdict)) *Gate {
	g := &Gate{shares: shares, decided: decided, places: places}
	g.mu.queue.nearest, g.mu.edge = Forever, Forever
	first := &Segment{}
	first.until.Store(Forever)
	g.segment.Store(first)
	return g
}

// Without switches safeguards off, to see that a simulation notices. It is for
// tests, before the first use.
func (g *Gate) Without(off safeguard.Set) {
	g.off, g.mu.ledger.off = off, off
}

// Segment returns the segment to take from, for callers that keep the fast path
// in their own hands.
func (g *Gate) Segment() *Segment { return g.segment.Load() }

// Take issues n permits, all or none, doing the boundary's work if it is due.
func (g *Gate) Take(at clock.Instant, n int64) (Grant, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.currentLocked(at)
	return s.Grant, s.Take(at.Mono, n)
}

// TakeUpTo issues as many permits as are left, at most n.
func (g *Gate) TakeUpTo(at clock.Instant, n int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.currentLocked(at).TakeUpTo(at.Mono, n)
}

// Wait issues n permits at once if it can, and otherwise queues the waiter, if
// it can be served by the deadline as far as is known. With a verdict other
// than Queued the waiter is not in the queue, and decided is not called. wake is
// what Wake returns then.
func (g *Gate) Wait(at clock.Instant, w *Waiter, n, deadline int64) (grant Grant, v Verdict, wake int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.closed {
		return Grant{}, Closed, Forever
	}
	s := g.currentLocked(at)
	if s.Take(at.Mono, n) {
		return s.Grant, Granted, Forever
	}
	if c := g.mu.terms.Ceiling; c > 0 && n > c {
		return Grant{}, TooLarge, Forever
	}
	if g.mu.terms.Hopeless || deadline <= g.mu.last || !g.reachableLocked(n, deadline) {
		return Grant{}, Limited, Forever
	}
	if g.places > 0 && g.mu.queue.length >= g.places {
		return Grant{}, Full, Forever
	}
	kept := s.withhold()
	g.mu.published -= kept
	g.mu.held += kept
	w.n, w.deadline = n, deadline
	g.mu.queue.push(w)
	return Grant{}, Queued, g.wakeLocked()
}

// Cancel takes a waiter out of the queue. It returns false if the waiter was
// decided before.
func (g *Gate) Cancel(at clock.Instant, w *Waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.queued {
		return false
	}
	first := g.mu.queue.head == w
	g.mu.queue.remove(w)
	s := g.currentLocked(at)
	switch {
	case !first:
	case g.mu.terms.Shape.Any():
		g.rebuildLocked(at) // what is left over has to be issued within its slot
	default:
		g.serveLocked(s)
	}
	return true
}

// Return gives n unused permits back. It returns false if the window they were
// issued for is over.
func (g *Gate) Return(at clock.Instant, grant Grant, n int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.currentLocked(at)
	if g.mu.closed {
		return false
	}
	g.settleLocked()
	returned := g.mu.ledger.refund(n, grant, g.mu.last)
	if returned {
		g.mu.issued -= n
	}
	g.rebuildLocked(at)
	return returned
}

// Changed tells the gate that shares or terms may have changed.
func (g *Gate) Changed(at clock.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.forecast.forget()
	g.mu.judge = g.mu.last
	g.rebuildLocked(at)
}

// Proved tells the gate that the proof's end has moved on.
func (g *Gate) Proved(at clock.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.mu.terms.Strict {
		return
	}
	s, terms := g.segment.Load(), g.shares.Terms(at)
	if g.mu.stale || !terms.Strict || !s.WallValid(at) || at.Mono >= g.mu.terms.Until {
		g.rebuildLocked(at)
		return
	}
	g.mu.terms.Until, g.mu.terms.WallUntil = terms.Until, terms.WallUntil
	g.limitLocked(s, terms.Until, terms.WallUntil)
}

// Tick does what is due at the instant at.
func (g *Gate) Tick(at clock.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.last = max(g.mu.last, at.Mono)
	g.currentLocked(at)
	if !g.mu.terms.Known || g.mu.terms.Shape.Any() {
		g.refuseLateLocked()
	}
}

// Wake returns the instant at which Tick should be called next, or Forever: it
// is needed only while somebody waits.
func (g *Gate) Wake() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wakeLocked()
}

func (g *Gate) wakeLocked() int64 {
	if g.mu.queue.length == 0 || g.mu.closed {
		return Forever
	}
	wake := g.segment.Load().until.Load()
	if !g.mu.terms.Known || g.mu.terms.Shape.Any() {
		wake = min(wake, g.mu.queue.nearest)
	}
	return wake
}

// Evict refuses all waiters of one owner with the verdict Closed.
func (g *Gate) Evict(at clock.Instant, owner uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuseLocked(Closed, func(w *Waiter) bool { return w.Owner == owner })
	s := g.currentLocked(at)
	if g.mu.terms.Shape.Any() {
		g.rebuildLocked(at)
		return
	}
	g.serveLocked(s)
}

// Close refuses all waiters, now and later, and issues nothing more.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.closed = true
	g.refuseLocked(Closed, func(*Waiter) bool { return true })
	g.settleLocked()
	last := &Segment{}
	last.until.Store(Forever)
	g.segment.Store(last)
}

// Estimate returns the instant at which a newcomer who wants n permits will
// have them, if nothing changes; an instant that has passed means now. known is
// false if the gate cannot tell; the instant is then the earliest worth trying.
func (g *Gate) Estimate(at clock.Instant, n int64) (when int64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.currentLocked(at)
	if !g.mu.terms.Known {
		return g.segment.Load().until.Load(), false
	}
	w := g.walkLocked()
	when = w.next(addCapped(g.mu.queue.permits, n), Forever)
	return when, w.edges <= horizon && w.n > 0
}

// Usage is what a gate has done, for those who watch it.
type Usage struct {
	// Start and End bound the shortest limit's current window, in corrected wall
	// time; both are 0 before the first.
	Start, End int64
	// Used is the number of permits issued in it, Share the number that may be.
	Used, Share int64
	Issued      int64 // permits issued since the beginning
	Beyond      int64 // of these, beyond what the share allowed: 0, or a bug
	Waiting     int   // waiters in the queue
	WaitingFor  int64 // permits that they want
}

// Usage returns what the gate has done up to the instant at.
func (g *Gate) Usage(at clock.Instant) Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.currentLocked(at)
	taken := g.mu.published - s.Left()
	u := Usage{
		Issued:  g.mu.issued + taken,
		Beyond:  g.mu.ledger.beyond,
		Waiting: g.mu.queue.length, WaitingFor: g.mu.queue.permits,
	}
	if a := g.mu.ledger.shortest(); a != nil {
		w := g.usageLocked(a, taken)
		u.Start, u.End, u.Used, u.Share = w.Start, w.End, w.Used, w.Share
	}
	return u
}
