package window

import (
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// TakeUpTo issues as many permits to a call of class c as there are now, at most n, of the
// segment that it returns.
func (g *Gate) TakeUpTo(at clock.Instant, n int64, c queue.Class) (s *Segment, grant queue.Grant, got int64) {
	g.mu.Lock()
	defer g.unlock()
	s = g.currentForLocked(at, n, c)
	if g.mu.queue.Head() != nil {
		g.withholdLocked(s)
		defer g.openLocked(s)
		if got = min(n, g.heldForLocked(c)); got > 0 {
			return s, g.issueLocked(got, c), got
		}
	}
	if got = s.TakeUpTo(g.mu.last.Mono, n, c); got < n {
		g.wantNowLocked(1)
	}
	return s, s.Grant, got
}

// currentForLocked is currentLocked for a newcomer that wants n permits. Where permits come
// along a window, the segment ends when the head of the queue has its own: for a newcomer of
// a higher class there may be some before. So what is held is counted anew, and what the segment has for those that pass
// the head is held again. It is counted anew also if enough is held: a bucket may have less once what was taken of the
// segment is booked (advanceLocked).
func (g *Gate) currentForLocked(at clock.Instant, n int64, c queue.Class) *Segment {
	s, l := g.currentLocked(at), &g.mu.ledger
	if g.comesLocked(c) && !g.mu.stale && l.debt == 0 {
		g.withholdLocked(s) // the caller opens it again
		g.advanceLocked()
		l.release(max(n, g.headLocked()))
		g.mu.held = l.budget()
	}
	return s
}

// advanceLocked books what was taken of the segment, and brings the ledger to the present. The segment goes on: what
// callers take of it from then on is not booked yet. It books as of the segment's edge, as settleLocked does: takers read the
// clock themselves, and may have taken later than the gate's present.
func (g *Gate) advanceLocked() {
	l, taken := &g.mu.ledger, g.takenLocked()
	l.charge(taken, g.mu.edge)
	g.mu.published -= taken
	l.advance(g.mu.last.Mono)
}

// comesLocked reports whether more permits may come to a newcomer of a class before the
// segment ends.
func (g *Gate) comesLocked(c queue.Class) bool {
	w, p := g.mu.queue.Head(), g.planLocked()
	return w != nil && w.Class() > c && p.Gradual()
}

// Lasts reports whether the refusal of a call of class c lasts until the segment ends.
func (g *Gate) Lasts(c queue.Class) bool {
	g.mu.Lock()
	defer g.unlock()
	return !g.comesLocked(c)
}

// heldForLocked returns how many permits that are held for the queue a newcomer of a class
// may have: all if those that wait are of lower classes, else what they cannot use.
func (g *Gate) heldForLocked(c queue.Class) int64 {
	if g.mu.queue.Head() == nil {
		return 0
	}
	l := g.lineLocked()
	return l.Newcomer(c) - g.segment.Load().keeps(c)
}

// issueLocked issues n of the permits that are held for the queue to a newcomer of class c: see heldForLocked.
func (g *Gate) issueLocked(n int64, c queue.Class) queue.Grant {
	l := &g.mu.ledger
	g.advanceLocked()
	l.charge(n, g.mu.last.Mono)
	g.mu.held -= n
	g.pushLocked(c)
	g.tellBookedLocked()
	return l.grant()
}

// pushLocked notes that permits of a newcomer of class c come before the calls of lower classes.
// Some of those that wait may not be served in time any more: they are judged where the
// segment ends, not for each newcomer.
func (g *Gate) pushLocked(c queue.Class) {
	g.mu.judge = g.mu.judge || g.mu.queue.Last().Class() > c
}

// releases is in how many parts at most what is kept for critical calls is released along a
// window. More parts need more wake-ups.
const releases = 20

// kept returns how many permits of the span's own share are kept for critical calls at the monotonic instant now, and
// until when. Of the whole at a window's start an equal part is released at a time, and the
// last one so early that others can use it.
func (s *span) kept(l *ledger, now int64) (n, until int64) {
	whole, parts, start, each := s.keeps(l.plan, now)
	i := int64(0)
	if parts > 0 {
		i = min(parts, max(0, now-start)/each)
	}
	if i == parts {
		return 0, clock.Forever
	}
	return whole * (parts - i) / parts, start + (i+1)*each
}

// keptUntil returns the instant from which on n permits can be issued to a call that is not
// critical, as far as that decides it, by the plan p.
func (s *span) keptUntil(n int64, p *plans.Plan, now int64) int64 {
	whole, parts, start, each := s.keeps(p, now)
	for i := range parts {
		if s.Bound-s.Used-whole*(parts-i)/parts >= n {
			return start + i*each
		}
	}
	return start + parts*each
}

// keeps returns how many permits are kept at the window's start, in how many parts they are
// released, and when: the first each after the start.
func (s *span) keeps(p *plans.Plan, now int64) (whole, parts, start, each int64) {
	own := s.own()
	if p.Critical <= 0 || p.Gradual() || s.Bound == shape.Unbounded || own <= 0 {
		return 0, 0, now, 0
	}
	whole = (own/100)*p.Critical + (own%100*p.Critical+99)/100
	parts = min(whole, releases)
	start = p.OpensAfter(s.Window.Start())
	each = max(1, (int64(s.Window.Length)-2*p.Guard)/(parts+1))
	return whole, parts, start, each
}

// kept returns how many of the permits that may be issued now are for critical calls only, and
// until when.
func (l *ledger) kept() (n, until int64) {
	budget, others, until := l.budget(), l.inHand(), clock.Forever
	if budget == 0 {
		return 0, clock.Forever
	}
	for s := range l.bounded {
		kept, end := s.kept(l, l.now)
		others, until = min(others, s.left()-kept), min(until, end)
	}
	return budget - max(0, others), until
}
