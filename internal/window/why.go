package window

import (
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// Why returns the verdict on a call of class c for n permits that does not wait, and has none.
func (g *Gate) Why(at clock.Instant, n int64, c queue.Class) queue.Verdict {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	return g.whyLocked(n, c, nil)
}

// whyLocked returns the verdict on a call of class c for n permits that is refused: what decided it. w
// is its waiter, which has just left the queue; nil if it never was in it.
func (g *Gate) whyLocked(n int64, c queue.Class, w *queue.Waiter) queue.Verdict {
	p, l := g.planLocked(), &g.mu.ledger
	if p.Hopeless || p.Shut || g.mu.stale {
		return queue.Limited
	}
	if l.debt > 0 {
		return queue.Owes
	}
	left := l.budget() - g.takenLocked()
	first := g.mu.queue.Head()
	ahead := first != nil && first.Class() <= c && (w == nil || first.Class() < c || !w.WentFirst())
	kept, _ := l.kept()
	switch {
	case ahead && (left >= n || first.Large()):
		return queue.Behind
	case c != queue.Critical && left >= n && left-kept < n:
		return queue.Kept
	case p.Pacing.Even && left < n && l.unspent(g.takenLocked()) >= n:
		return queue.Paced
	}
	return queue.Limited
}

// unspent returns how many permits the windows that run have that were not issued, those included
// that come later in them.
func (l *ledger) unspent(taken int64) int64 {
	least := l.inHand()
	for s := range l.bounded {
		least = min(least, s.Bound-s.Used)
	}
	return least - taken
}
