package window

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/quota"
)

// currentLocked returns the segment in force at the instant at, after moving on
// if the present one is over.
func (g *Gate) currentLocked(at clock.Instant) *Segment {
	s := g.segment.Load()
	if g.mu.closed || s.Open(at.Mono) && (!s.Strict || s.WallValid(at)) {
		return s
	}
	g.rebuildLocked(at)
	return g.segment.Load()
}

// settleLocked ends the segment and books what was taken from it.
func (g *Gate) settleLocked() {
	s := g.segment.Load()
	if left := s.seal(); left != sealed {
		taken := g.mu.published - left
		g.mu.ledger.charge(taken, g.mu.edge)
		g.mu.issued += taken
	}
	g.mu.published, g.mu.held = 0, 0
}

// rebuildLocked ends the segment, brings the ledger to the present, serves the
// queue and publishes the next segment. It is all of a boundary's work.
func (g *Gate) rebuildLocked(at clock.Instant) {
	if g.mu.closed {
		return
	}
	now := max(at.Mono, g.mu.last)
	at.Mono, g.mu.last = now, now
	g.settleLocked()

	g.mu.terms = g.shares.Terms(at)
	t := &g.mu.terms
	epoch := g.mu.ledger.epoch
	g.mu.ledger.roll(now, g.shares, t.Shape)
	if g.mu.ledger.epoch != epoch {
		g.mu.forecast.forget()
		g.mu.judge = now
	}
	g.mu.stale = t.Strict && (now >= t.Until || at.Wall >= t.WallUntil || at.Wall-at.Mono > t.Lead)
	edge, guarded := g.edgeLocked(now)
	budget := int64(0)
	if !g.mu.stale && !guarded && (now >= t.ShutUntil || g.off.Off(safeguard.DrainShuts)) {
		budget = g.mu.ledger.budget()
		if t.Pacing.Even {
			budget, edge = g.paceLocked(now, budget, edge)
		}
	}
	g.mu.edge = edge

	s := &Segment{Strict: t.Strict, lead: t.Lead, Grant: g.grantLocked(now)}
	g.mu.held = budget
	g.serveLocked(s)
	if t.Shape.Any() {
		g.mu.edge = g.shapedEdgeLocked(s, now)
	}
	if t.Strict && !g.mu.stale {
		g.limitLocked(s, t.Until, t.WallUntil)
	} else {
		g.limitLocked(s, Forever, Forever)
	}
	g.segment.Store(s)
}

// grantLocked returns the grant of permits that can be had from now on.
func (g *Gate) grantLocked(now int64) Grant {
	grant := Grant{At: now, Epoch: g.mu.ledger.epoch}
	a := g.mu.ledger.shortest()
	switch {
	case a == nil:
	case g.mu.terms.Shape.Unaligned:
		slot := int64(quota.SlotOf(a.window.Length))
		grant.Start = slotAt(a.window.Length, now)*slot + g.shares.Offset()
		grant.End = grant.Start + int64(a.window.Length)
	default:
		grant.Start, grant.End = a.window.Start(), a.window.End()
	}
	return grant
}

// shapedEdgeLocked returns when the segment ends where other shapes than aligned
// windows bind: what it holds is issued within one slot, and once that is gone,
// nothing happens until the next permit comes, or a share may grow.
func (g *Gate) shapedEdgeLocked(s *Segment, now int64) int64 {
	edge, left := g.mu.edge, s.left.Load()
	offset, shape := g.shares.Offset(), g.mu.terms.Shape
	next := int64(1)
	if g.mu.queue.head != nil {
		next = g.mu.queue.head.n
	}
	comes := int64(math.MinInt64)
	for i := range g.mu.ledger.accounts {
		a := &g.mu.ledger.accounts[i]
		if !a.binds || a.bound == Unbounded {
			continue
		}
		edge = min(edge, shape.Grows(a.window.Length, now+offset)-offset)
		if left > 0 {
			edge = min(edge, a.slotEnd(now))
		} else {
			comes = max(comes, a.comes(next, a.bound, now, unbooked{}))
		}
	}
	if left == 0 && comes > now {
		edge = min(edge, comes)
	}
	return edge
}

// paceLocked returns how many permits of the budget pacing releases now, and the
// instant at which to ask again.
func (g *Gate) paceLocked(now, budget, edge int64) (released, next int64) {
	t, offset := &g.mu.terms, g.shares.Offset()
	released, next = budget, edge
	for i := range g.mu.ledger.accounts {
		a := &g.mu.ledger.accounts[i]
		if !a.binds || a.bound == Unbounded {
			continue
		}
		l := lineOf(a.window, a.window.Start()-offset, t.Guard, a.bound, t.Pacing.Phase)
		n, again := l.release(now, a.used)
		released, next = min(released, n), min(next, again)
	}
	a := g.mu.ledger.shortest()
	if t.Pacing.Delay == 0 || a == nil || a.bound == Unbounded {
		return released, next
	}
	c, q := &g.mu.adaptive, &g.mu.queue
	c.observe(now, a.window, g.mu.issued, q.permits)
	most := catchUp * float64(a.bound) / float64(a.window.Length)
	return min(released, c.release(now, t.Pacing.Delay, q.nearest, most, float64(t.Pacing.Phase>>11)/(1<<53))), min(next, now+sliceOf(a.window.Length))
}

// limitLocked ends the segment at the next edge, or with the proof if that ends
// sooner.
func (g *Gate) limitLocked(s *Segment, until, wallUntil int64) {
	s.until.Store(min(g.mu.edge, until))
	s.wallUntil.Store(wallUntil)
}

// edgeLocked returns the next instant at which more may be issued or less, and
// whether the instant now lies within the guard of any window's edge. It also
// notes when the running windows open.
func (g *Gate) edgeLocked(now int64) (edge int64, guarded bool) {
	edge = Forever
	g.mu.opens = g.mu.terms.ShutUntil
	if g.mu.opens > now {
		edge = g.mu.opens
	}
	offset, guard := g.shares.Offset(), g.mu.terms.Guard
	if g.off.Off(safeguard.WholeGuard) {
		guard /= 2
	}
	for i := range g.mu.ledger.accounts {
		w := g.mu.ledger.accounts[i].window
		start, end := w.Start()-offset, w.End()-offset
		for _, e := range [...]int64{start + guard, end - guard, end} {
			if e > now {
				edge = min(edge, e)
				break
			}
		}
		if now < start+guard {
			g.mu.opens = max(g.mu.opens, start+guard)
			guarded = guarded || guard > 0 || !g.off.Off(safeguard.NotBeforeStart)
		}
		if now >= end-guard {
			guarded = true
		}
	}
	return edge, guarded
}

// serveLocked gives what is held to the queue, in order, and what the queue
// leaves to newcomers. Then it refuses those who can no longer be served in
// time.
func (g *Gate) serveLocked(s *Segment) {
	q, served := &g.mu.queue, int64(0)
	for q.head != nil {
		w := q.head
		if c := g.mu.terms.Ceiling; c > 0 && w.n > c {
			q.remove(w)
			g.decided(w, Grant{}, TooLarge)
			continue
		}
		if w.n > g.mu.held {
			break // it keeps its place, and what is held
		}
		q.remove(w)
		g.mu.held -= w.n
		served += w.n
		g.decided(w, s.Grant, Granted)
	}
	if served > 0 {
		g.mu.ledger.charge(served, g.mu.last)
		g.mu.issued += served
	}
	g.refuseLateLocked()
	if q.head == nil && g.mu.held > 0 {
		g.mu.published += g.mu.held
		s.left.Add(g.mu.held)
		g.mu.held = 0
	}
}

// refuseLateLocked refuses the waiters that cannot be served by their deadlines.
func (g *Gate) refuseLateLocked() {
	q := &g.mu.queue
	switch {
	case q.head == nil:
	case g.mu.terms.Hopeless:
		g.refuseLocked(Limited, func(*Waiter) bool { return true })
	case q.nearest == Forever:
	case !g.mu.terms.Known:
		if q.nearest <= g.mu.last {
			g.refuseLocked(Limited, func(w *Waiter) bool { return w.deadline <= g.mu.last })
		}
	case g.mu.terms.Pacing.Even && !q.unordered && g.mu.last < g.mu.judge:
		g.refuseOverdueLocked()
	case g.mu.terms.Shape.Any() && !g.mu.ledger.shrunk && q.nearest > g.mu.last:
		// Nothing has become later than it was when they came.
	default:
		g.mu.ledger.shrunk = false
		if a := g.mu.ledger.shortest(); a != nil {
			g.mu.judge = g.mu.last + int64(a.window.Length)/judgements
		}
		f := g.walkLocked()
		if f.next(q.permits, q.nearest) <= q.nearest {
			return // even the last one will be served before the first deadline
		}
		f = g.walkLocked()
		g.refuseLocked(Limited, func(w *Waiter) bool { return !f.serves(w.n, w.deadline) })
	}
}

// judgements is how often in a window all waiters are judged by what is to come,
// at least, where pacing releases permits slice by slice. A slice is no news: what
// it releases was foreseen. To walk along a queue of a second's calls at each of a
// hundred slices took more than everything else together. It is done where deadlines
// are out of order, for then nobody else tells which of them is over.
const judgements = 10

// refuseOverdueLocked refuses those at the head of the queue whose deadlines are
// over: something was released later than foreseen.
func (g *Gate) refuseOverdueLocked() {
	q := &g.mu.queue
	for w := q.head; w != nil && w.deadline <= g.mu.last; w = q.head {
		q.remove(w)
		g.decided(w, Grant{}, Limited)
	}
}

// refuseLocked refuses every waiter for which refuse is true, asking in order,
// and finds the nearest deadline of the rest.
func (g *Gate) refuseLocked(v Verdict, refuse func(*Waiter) bool) {
	q := &g.mu.queue
	nearest, last := Forever, int64(math.MinInt64)
	q.unordered = true // until all were seen: what is removed is no news of the rest
	ordered := true
	for w := q.head; w != nil; {
		next := w.next
		if refuse(w) {
			q.remove(w)
			g.decided(w, Grant{}, v)
		} else {
			nearest = min(nearest, w.deadline)
			ordered, last = ordered && w.deadline >= last, w.deadline
		}
		w = next
	}
	q.nearest, q.unordered = nearest, !ordered
}

// reachableLocked reports whether a waiter for n permits at the end of the queue
// can be served by the deadline, as far as is known.
func (g *Gate) reachableLocked(n, deadline int64) bool {
	if deadline == Forever || !g.mu.terms.Known {
		return true
	}
	f := g.walkLocked()
	return f.next(addCapped(g.mu.queue.permits, n), deadline) <= deadline
}
