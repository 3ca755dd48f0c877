package window

import (
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// Planner makes plans. The gate calls it under its lock: the methods must not
// block and must not call the gate.
type Planner interface {
	// Plan returns the plan that holds now; at is the present instant.
	Plan(at clock.Instant) plans.Plan
	// Foresee returns the plan that will hold at the monotonic instant mono,
	// which lies ahead, if there is no news until then.
	Foresee(mono int64) plans.Plan
}

// Gate issues the permits of one provider in one process, and keeps the queue of those who wait for them. Taking from the
// current Segment needs no lock; all else happens under one.
//
// While callers wait, the segment has only what newcomers may take before them: permits that no waiter can use in this
// window, and those that a large call leaves to small ones (Line.besides). The rest is held for the queue. Under the lock
// a newcomer of a higher class than all who wait may have that too (Line.Newcomer). So the fast path need not know that
// there is a queue.
//
// The first to see that a segment is over, a caller or the alarm, does the work of its end. Every method that takes the
// lock ends in unlock, which tells the alarm when it has to ring: so no method has to remember.
type Gate struct {
	// segment is the one to take from. Replaced under mu, read by everybody.
	segment atomic.Pointer[Segment]

	planner Planner
	decided func(w *queue.Waiter, g queue.Grant, v queue.Verdict)
	alarm   func(wake int64) // called without the lock: see NewGate

	// The functions from here on are called under the gate's lock: they must not block and must not
	// call the gate. They may be replaced before the first call.

	// Lent is told, after each loan, the sum of what this instance (self) has lent to the guest in the windows that run.
	Lent func(self, guest string, loan protocol.Note)
	// Arm has Look called at a monotonic instant, or before.
	Arm func(at int64)
	// Refused returns the number of permits refused so far.
	Refused func() int64
	// RefusedLarge returns how many of those were refused to large calls.
	RefusedLarge func() int64
	// Called returns the number of permits granted and refused so far to calls of one class.
	Called func(c queue.Class) int64
	// LendsTo returns the corrected wall time from which a guest has a share, and whether permits may be lent to it at a
	// monotonic instant: it may have left.
	LendsTo func(guest string, at int64) (from int64, lends bool)
	// Wanting is called when Uses has something for etcd: permits of a long limit are wanted or to be given back, an ask is
	// to be taken back, or the provider has stated what is left.
	Wanting func()
	// Booked is told the use of each window after a change is booked, and always before a permit of another window can be
	// taken. It is set only while a trace is recorded.
	Booked func([]Use)

	mu struct {
		sync.Mutex
		ledger    ledger
		queue     queue.Queue
		judge     bool        // judgeLocked is due: by what has happened some waiters may not be served in time
		places    int         // bound on the queue's length; 0 for none
		plan      *plans.Plan // in force
		foreseen  foreseen
		void      bool // there is news: the plan in force must be made again
		proved    bool // only the proof's end has moved: the plan must be made again, and foreseen ones stay
		returned  returned
		borrower  borrower
		last      clock.Instant // the gate's present: see reachLocked
		edge      int64         // when the segment ends, the proof's end left aside
		stale     bool          // the segment is empty for want of a proof
		published int64         // permits left in the segment, those that back a front, and those taken and not booked yet
		held      int64         // permits of this segment that belong to the queue
		seen      int64         // permits issued since the beginning, as of the latest call of Uses
		unsure    int           // Unsure waiters that were served, and whose callers have not called Sure yet
		closed    bool
	}
}

// NewGate returns a gate that issues nothing until it has a plan: callers that may wait are queued. It asks the planner at
// its first rebuild: with Changed at the latest.
//
// decided is called once for each waiter that Enter has queued, unless Cancel takes it away: with its grant and Granted
// or Passed, or with an empty grant and the verdict that refuses it. Waiters that are served in one go along the queue are
// told in its order. One that others overtook, that was displaced, or whose deadline has come may be told before or after
// its neighbours. decided is called under the gate's lock: it must not block and must not call the gate.
//
// alarm is called without the lock whenever there are waiters or debts, with the monotonic
// instant at which Tick must be called at the latest. Of several calls the earliest
// instant counts. An alarm that is nil is not called.
func NewGate(planner Planner, decided func(*queue.Waiter, queue.Grant, queue.Verdict), alarm func(wake int64)) *Gate {
	g := &Gate{
		planner: planner, alarm: alarm,
		Lent: func(_, _ string, _ protocol.Note) {}, Arm: func(int64) {}, Wanting: func() {},
		Refused: func() int64 { return 0 }, RefusedLarge: func() int64 { return 0 }, Called: func(queue.Class) int64 { return 0 },
		LendsTo: func(string, int64) (int64, bool) { return 0, true },
	}
	g.decided = func(w *queue.Waiter, grant queue.Grant, v queue.Verdict) {
		if v == queue.Limited {
			v = g.whyLocked(w.N(), w.Class(), w)
		}
		decided(w, grant, v)
	}
	g.mu.borrower.look, g.mu.borrower.lackedAt = clock.Forever, clock.Forever
	g.mu.plan, g.mu.void = &plans.Plan{Until: clock.Forever, Keys: plans.Unheard}, true
	g.mu.ledger.plan = g.planLocked()
	g.publishLocked(&Segment{Keys: plans.Unheard}, clock.Forever)
	return g
}

// Bound sets how many waiters there may be at once; 0 means no bound. Those that wait already stay.
func (g *Gate) Bound(places int) {
	g.mu.Lock()
	defer g.unlock()
	g.mu.places = places
}

// Segment returns the segment to take from, for callers that keep the fast path in their own hands.
func (g *Gate) Segment() *Segment { return g.segment.Load() }

// unlock releases the lock and tells the alarm when something is due.
func (g *Gate) unlock() {
	wake := g.wakeLocked()
	g.mu.Unlock()
	if wake != clock.Forever && g.alarm != nil {
		g.alarm(wake)
	}
}

// wakeLocked returns when Tick is due: at the segment's end, and at the earliest deadline. After a Tick the result is later
// than the instant of the Tick, since that moves on from a segment that is over, and serves or refuses the waiters that are
// due: so the alarm cannot ring in vain for ever.
func (g *Gate) wakeLocked() int64 {
	if g.mu.closed || g.mu.queue.Len() == 0 && g.mu.ledger.debt == 0 {
		return clock.Forever
	}
	return min(g.segment.Load().until, g.mu.queue.Nearest())
}

// Enter issues n permits to a call of class c at once if it can. If it cannot it queues w, unless the call passes in
// shadow mode or is refused. It is refused if it wants too much, if there is no policy (plans.Plan.Hopeless), if the queue
// is full, if the gate is closed, if w is nil or the deadline is not ahead, and if it is known that w cannot be served by
// the deadline.
//
// A large call that may wait (Segment.Leaves) is queued even if the permits are there, so that it leaves small calls what
// they will want. If the queue is full and its last waiter is of a lower class than w, that waiter is Displaced, and w is
// queued.
//
// With another verdict than Queued, w is not in the queue, and decided is not called for it. With Queued, decided may have
// been called for it before Enter returns.
func (g *Gate) Enter(at clock.Instant, w *queue.Waiter, n, deadline int64, c queue.Class) (queue.Grant, queue.Verdict) {
	g.mu.Lock()
	defer g.unlock()
	grant, v := g.enterLocked(at, w, n, deadline, c)
	if v == queue.Limited {
		v = g.whyLocked(n, c, nil)
	}
	return grant, v
}

func (g *Gate) enterLocked(at clock.Instant, w *queue.Waiter, n, deadline int64, c queue.Class) (queue.Grant, queue.Verdict) {
	if g.mu.closed {
		return queue.Grant{}, queue.Closed
	}
	s, p, q := g.currentForLocked(at, n, c), g.planLocked(), &g.mu.queue
	head, last := q.Head(), q.Last()
	full := g.mu.places > 0 && q.Len() >= g.mu.places
	leaves := w != nil && deadline > g.mu.last.Mono && s.Leaves(n)
	if !leaves && s.Take(g.mu.last.Mono, n, c) {
		return s.Grant, queue.Granted
	}
	if head != nil {
		g.withholdLocked(s)
		defer func() {
			if s == g.segment.Load() {
				g.openLocked(s)
			}
		}()
	}
	switch {
	case !leaves && g.heldForLocked(c) >= n:
		return g.issueLocked(n, c), queue.Granted
	case p.Shadow:
		g.wantNowLocked(n)
		return s.passed(), queue.Passed
	case !g.fitsLocked(n):
		return queue.Grant{}, queue.TooLarge
	case p.Hopeless, w == nil, deadline <= g.mu.last.Mono:
		g.wantLocked(n)
		return queue.Grant{}, queue.Limited
	case full && last.Class() <= c:
		return queue.Grant{}, queue.Full
	case !g.inTimeLocked(n, deadline, c):
		g.wantLocked(n)
		return queue.Grant{}, queue.Limited
	}
	if full {
		q.Remove(last)
		g.decided(last, queue.Grant{}, queue.Displaced)
	}
	if head == nil {
		g.withholdLocked(s)
	}
	q.Push(w, n, deadline, c, g.largeLocked(n))
	g.pushLocked(c)
	g.mu.judge = g.mu.judge || g.mu.unsure > 0 // inTimeLocked lets everybody in then: whether w is served in time is judged later
	l := g.lineLocked()
	l.Entered(w)
	g.wantForQueueLocked()
	g.noteLackLocked()
	switch {
	case q.Head() == w && (head != nil || max(l.held, l.unpaced) > 0 && l.ends() != clock.Forever):
		g.rebuildLocked(at) // the edge was set without w, which is the first now: its permits may be due before, or its claim may end
	case full:
		g.rebuildLocked(at) // nothing is kept any more for the one that was displaced (beside)
	}
	return queue.Grant{}, queue.Queued
}

// Want notes that a call got fewer permits than it asked for: others are asked for more, or etcd is.
func (g *Gate) Want(at clock.Instant) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	g.wantNowLocked(1)
}

// Cancel takes a waiter out of the queue. It returns false if the waiter was
// decided before.
func (g *Gate) Cancel(at clock.Instant, w *queue.Waiter) bool {
	g.mu.Lock()
	defer g.unlock()
	first := g.mu.queue.Head() == w
	if !g.mu.queue.Remove(w) {
		return false
	}
	if first || g.mu.borrower.claim.passed > 1 {
		g.rebuildLocked(at) // others may be due before the segment ends, and nothing is kept any more for w (beside)
	}
	return true
}

// Sure notes that the caller of an Unsure waiter that was queued and served has given the permits back, or will not. It is
// called once for each. While there are any, judging whether waiters can be served in time is put off (mu.judge); after the
// last one the next rebuild does it.
func (g *Gate) Sure() {
	g.mu.Lock()
	defer g.unlock()
	g.mu.unsure--
}

// Changed tells the gate that there is news: plans made before are void.
func (g *Gate) Changed(at clock.Instant) {
	g.mu.Lock()
	defer g.unlock()
	g.mu.void = true
	g.rebuildLocked(at)
}

// Proved tells the gate that the proof's end has moved on. While the proof binds (Strict), that makes a new plan due, and
// foreseen ones stay. All plans are void if the gate had stopped for want of a proof (stale), or if the clocks have parted
// since the plan was made: by the plan's offset a window may then seem to run that has ended. Under the rule hold only this
// call notices that.
func (g *Gate) Proved(at clock.Instant) {
	g.mu.Lock()
	defer g.unlock()
	proof := &g.planLocked().Proof
	g.mu.proved = g.mu.proved || proof.Strict
	g.mu.void = g.mu.void || g.mu.stale || proof.Parted(at)
	if g.mu.proved || g.mu.void {
		g.rebuildLocked(at)
	}
}

// Tick does the work that is due at the instant at.
func (g *Gate) Tick(at clock.Instant) {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.queue.Nearest() <= at.Mono {
		g.rebuildLocked(at)
	} else {
		g.currentLocked(at)
	}
}

// Evict refuses all waiters of one owner with the verdict Closed.
func (g *Gate) Evict(at clock.Instant, owner uint32) {
	g.mu.Lock()
	defer g.unlock()
	g.refuseLocked(queue.Closed, func(w *queue.Waiter) bool { return w.Owner == owner })
	g.rebuildLocked(at)
}

// Close refuses all waiters, now and later, and issues nothing more.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.unlock()
	g.mu.closed = true
	g.refuseLocked(queue.Closed, func(*queue.Waiter) bool { return true })
	g.settleLocked()
	g.publishLocked(&Segment{}, clock.Forever)
}

// planLocked returns the plan in force.
func (g *Gate) planLocked() *plans.Plan { return g.mu.plan }

// reachLocked moves the gate's present (mu.last) on to the instant at, unless a later one has come before: callers that
// read the clocks early may come late. It takes Mono and Wall of the same reading, since the planner's clock compares them:
// a new Mono beside an old Wall would look as if somebody had set the clock.
func (g *Gate) reachLocked(at clock.Instant) {
	if at.Mono >= g.mu.last.Mono {
		g.mu.last = at
	}
}

// currentLocked returns the segment in force at the instant at, after moving on
// if the present one is over. What backed a front is put back into what the segment has left.
func (g *Gate) currentLocked(at clock.Instant) *Segment {
	s := g.runningLocked(at)
	if n := s.unback(); n > 0 {
		s.left.Add(n)
	}
	return s
}

// runningLocked is currentLocked, but what backs a front goes on doing so.
func (g *Gate) runningLocked(at clock.Instant) *Segment {
	s := g.segment.Load()
	if s.Open(at.Mono) && (!s.Strict || s.WallValid(at)) {
		g.reachLocked(at)
		return s
	}
	g.rebuildLocked(at)
	return g.segment.Load()
}

// settleLocked ends the segment, and books the permits that were taken from it. It books them as of the segment's edge, even
// if that lies ahead: nobody knows at which instant before it each was taken. A permit that is booked too late counts for
// too long, never for too short a time. Nothing is held for the queue any more, and no segment runs:
// the caller publishes the next one, as by rebuildLocked.
func (g *Gate) settleLocked() {
	s := g.segment.Load()
	left := s.seal()
	if left == sealed {
		return
	}
	left += s.unback()
	g.mu.ledger.charge(g.mu.published-left, g.mu.edge)
	g.mu.published, g.mu.held = 0, 0
	g.tellBookedLocked()
}

// rebuildLocked ends the segment that runs, begins the next one, and does what is due between them. In this order it
//
//  1. ends the segment and books what was taken of it
//  2. refuses the waiters whose deadline has passed; one whose deadline is this instant may still be served
//  3. adopts the plan of the present
//  4. pays debts
//  5. lends to guests that have asked, if no debt is left
//  6. serves the queue: with permits if no debt is left; in shadow mode whoever lacks them passes
//  7. if judging is due (mu.judge), refuses the waiters that cannot be served in time; refuses those whose deadline is now;
//     serves those behind them
//  8. publishes the next segment
//
// While the proof is over (stale) it pays and lends nothing, and serves nobody with permits. If the gate is closed it does
// nothing at all.
func (g *Gate) rebuildLocked(at clock.Instant) {
	if g.mu.closed {
		return
	}
	g.reachLocked(at)
	g.settleLocked()
	g.noteCallsLocked(min(g.mu.last.Mono, g.mu.edge))
	g.refuseOverdueLocked(g.mu.last.Mono - 1) // whoever's deadline is now may still be served, or is refused below

	news := g.adoptLocked()
	g.noteWindowLocked()
	if g.mu.queue.Len() > 0 || g.mu.borrower.first(g.mu.ledger.shortest()) {
		g.lackLocked()
	}
	p, l := g.planLocked(), &g.mu.ledger
	s, less := &Segment{Strict: p.Proof.Strict, Shadow: p.Shadow, Grant: l.grant(), Keys: p.Keys}, clock.Forever
	if g.mayBorrowLocked() {
		s.large = max(1, p.RoomLater())
	}
	if g.mu.stale = p.Proof.Over(g.mu.last); g.mu.stale {
		s.Stale = true
	} else {
		s.KeysLend = p.Keys != nil && p.Keys.Lending.Lends && !p.Shut
		l.release(g.headLocked())
		if l.debt == 0 {
			news = g.lendAtEdgeLocked() || news
			g.mu.held = l.budget()
			s.floor, less = l.kept()
		} else {
			g.lackForDebtLocked()
		}
	}
	g.serveLocked(s, p)
	if g.mu.judge = g.mu.judge || news; g.mu.judge && (g.mu.unsure == 0 || p.Hopeless) {
		g.mu.judge = false
		g.judgeLocked(p)
	}
	g.refuseOverdueLocked(g.mu.last.Mono)
	g.serveLocked(s, p) // a waiter that was refused may have been before others that want fewer
	if g.mu.queue.Head() != nil {
		g.noteLackLocked() // whoever came in an earlier window lacks permits in this one too
	}
	g.openLocked(s)
	if g.mu.queue.Head() != nil && p.Known && p.Until != clock.Forever {
		g.foreseeLocked(p.Until) // if the plan at Until is as foreseen, those that wait need not be judged again then
	}
	g.publishLocked(s, g.edgeLocked(p, less))
	g.wantForQueueLocked()
	g.tellGivesLocked()
}

// adoptLocked makes a new plan if there is news or a new proof, or if the old plan has ended, or its proof has, and brings the
// ledger to the present. It returns true if those who wait must be judged again: there was news, the plan allows less
// than was foreseen, or none was foreseen for now. A new window is no news, but while the queue is short they are judged then too (mu.judge).
func (g *Gate) adoptLocked() (news bool) {
	was := g.planLocked()
	if !g.mu.void && !g.mu.proved && g.mu.last.Mono < was.Until && was.Proof.Over(g.mu.last) == g.mu.stale {
		g.mu.ledger.advance(g.mu.last.Mono)
		return false
	}
	p := g.planner.Plan(g.mu.last)
	news = g.mu.foreseen.move(was, &p, g.mu.last.Mono) || g.mu.void
	if g.mu.void {
		g.mu.foreseen = foreseen{}
	}
	if g.mu.last.Mono >= was.Until && g.mu.queue.Len() <= short { // of later windows more is known now
		g.mu.judge = true
	}
	g.mu.plan, g.mu.void, g.mu.proved = &p, false, false
	g.mu.ledger.adopt(&p, g.mu.last.Mono)
	return news
}

// edgeLocked returns when the segment ends, leaving aside the proof's end. It is the earliest of these:
//
//   - the plan's end
//   - less: from then on fewer permits are kept for critical calls
//   - more permits come: one more than now, or as many as the head of the queue wants, if that is more and the head is not
//     a large call that small ones may pass. While a debt is owed, the next instalment is due instead. There is no such
//     edge while the plan is shut, while a window that the account has entered has not begun (early), or if a bucket
//     never holds so many
//   - the segment has permits, and later ones must be told apart from them (slotEnd)
//   - the queue is to be served again (Line.Again)
//
// The edge lies ahead. No other place decides this.
func (g *Gate) edgeLocked(p *plans.Plan, less int64) int64 {
	l, edge, need := &g.mu.ledger, min(p.Until, less), g.headLocked()
	if w := g.mu.queue.Head(); w != nil && w.Large() && g.passesLocked() == passLarge {
		need = 0 // where permits come gradually, callers that pass it may want fewer: the segment ends as soon as one permit more comes
	}
	more := l.next(max(g.mu.published+g.mu.held+1, need))
	if at := l.when(more); at > g.mu.last.Mono && !p.Shut && !l.early && (!p.Shape.Bucket || l.debt > 0 || more <= p.Room()) {
		edge = min(edge, at)
	}
	if g.mu.published > 0 {
		edge = min(edge, l.slotEnd())
	}
	if g.mu.queue.Len() > 0 {
		line := g.lineLocked()
		edge = min(edge, line.Again())
	}
	return max(edge, g.mu.last.Mono+1)
}

// publishLocked makes s the segment to take from, until the edge or the proof's end.
func (g *Gate) publishLocked(s *Segment, edge int64) {
	g.tellBookedLocked()
	g.mu.edge = edge
	s.until, s.wallUntil, s.lead = edge, clock.Forever, clock.Forever
	if proof := &g.planLocked().Proof; proof.Strict && !g.mu.stale && !g.mu.closed {
		s.until, s.wallUntil, s.lead = min(edge, proof.Until), proof.WallUntil, proof.Lead
	}
	g.segment.Store(s)
}

// withholdLocked takes back what a segment has for newcomers: the permits are held again.
func (g *Gate) withholdLocked(s *Segment) {
	kept := s.withhold()
	g.mu.published -= kept
	g.mu.held += kept
}

// openLocked moves the held permits that newcomers may have into s, which has none.
func (g *Gate) openLocked(s *Segment) {
	room := g.mu.held
	if g.mu.queue.Head() != nil {
		l := g.lineLocked()
		room = l.besides()
	}
	if room > 0 {
		g.mu.held -= room
		g.mu.published += room
		s.left.Store(room)
	}
}

// wantLocked notes that n permits were refused.
func (g *Gate) wantLocked(n int64) {
	g.keepLocked(n)
	g.wantNowLocked(n)
}

// keepLocked has pacing keep n permits together, for a caller that was refused or told when to come.
func (g *Gate) keepLocked(n int64) {
	g.mu.ledger.wanted.Note(n)
}

// headLocked returns how many permits the head of the queue waits for, or 0.
func (g *Gate) headLocked() int64 {
	if w := g.mu.queue.Head(); w != nil {
		return w.N()
	}
	return 0
}

// serveLocked goes along the queue in order, and gives each waiter its permits if it may have them now (Line.Fits): mostly,
// if enough are held. One that lacks some keeps its place, and Line.Pass says whether those behind it are looked at. One
// that wants more than any plan has room for, now or soon, is refused (fitsLocked). In shadow mode whoever lacks permits
// passes.
func (g *Gate) serveLocked(s *Segment, p *plans.Plan) {
	if g.mu.queue.Len() == 0 {
		return
	}
	l, served := g.lineLocked(), int64(0)
	l.Begin()
	book := func() {
		g.mu.ledger.charge(served, g.mu.last.Mono)
		served, l.taken = 0, l.taken-served
	}
	defer book()
	for w := range g.mu.queue.All {
		grant, v, n, c := s.Grant, queue.Granted, w.N(), w.Class()
		switch {
		case l.Fits(n, s.keeps(c), c, w.Large()):
			if l.Served(w, n, w.Large()); w.Large() {
				grant.Epoch |= queue.Large
				l.trade.claim.larges = queue.Sum(l.trade.claim.larges, n)
			}
			if w.Unsure {
				g.mu.unsure++
			}
			g.mu.held = l.held
			served += n
		case p.Shadow:
			grant, v = s.passed(), queue.Passed
		case !g.fitsLocked(n):
			grant, v = queue.Grant{}, queue.TooLarge
		default:
			if book(); !l.Pass(w) {
				return
			}
			continue
		}
		g.mu.queue.Remove(w)
		g.decided(w, grant, v)
		l.noteHead()
	}
}

// judgeLocked refuses those that wait and can no longer be served, or not in time.
func (g *Gate) judgeLocked(p *plans.Plan) {
	switch {
	case p.Hopeless:
		g.refuseLocked(queue.Limited, func(*queue.Waiter) bool { return true })
	case p.Known && g.mu.queue.Len() > 0:
		if most := g.largestLocked(g.mu.queue.Largest()); most > 0 {
			g.refuseLocked(queue.TooLarge, func(w *queue.Waiter) bool { return w.N() > most })
		}
		g.refuseLateLocked()
	}
}

// refuseOverdueLocked refuses those whose deadline is at the instant now or before it. Then it notes which waiter
// is the first now.
func (g *Gate) refuseOverdueLocked(now int64) {
	g.mu.queue.RemoveOverdue(now, func(w *queue.Waiter) { g.decided(w, queue.Grant{}, queue.Limited) })
	g.mu.borrower.claim.head(&g.mu.queue, g.mu.last.Mono)
}

// refuseLocked refuses every waiter for which refuse is true, asking in order.
func (g *Gate) refuseLocked(v queue.Verdict, refuse func(*queue.Waiter) bool) {
	g.mu.queue.RemoveIf(refuse, func(w *queue.Waiter) { g.decided(w, queue.Grant{}, v) })
}
