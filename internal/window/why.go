package window

import "github.com/quotient-limiter/quotient/internal/clock"

// Refused reports whether the verdict is that there are no permits now, or that none will come in
// time: Limited, or one that names what decided it.
func (v Verdict) Refused() bool { return v >= Limited && v <= Paced }

// Why returns the verdict on a call of class c for n permits that does not wait, and has none.
func (g *Gate) Why(at clock.Instant, n int64, c Class) Verdict {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	return g.whyLocked(n, c, nil)
}

// whyLocked returns the verdict on a call of class c for n permits that is refused: what decided it. w
// is its waiter, which has just left the queue; nil if it never was in it.
func (g *Gate) whyLocked(n int64, c Class, w *Waiter) Verdict {
	p, l := g.planLocked(), &g.mu.ledger
	if p.Hopeless || p.Shut || g.mu.stale {
		return Limited
	}
	if l.debt > 0 {
		return Owes
	}
	left := l.budget() - g.takenLocked()
	first := g.mu.queue.head()
	ahead := first != nil && first.class <= c && (w == nil || first.class < c || w.place != wentFirst)
	kept, _ := l.kept()
	switch {
	case ahead && (left >= n || first.large):
		return Behind
	case c != Critical && left >= n && left-kept < n:
		return Kept
	case p.Pacing.Even && left < n && l.unspent(g.takenLocked()) >= n:
		return Paced
	}
	return Limited
}

// unspent returns how many permits the windows that run have that were not issued, those included
// that come later in them.
func (l *ledger) unspent(taken int64) int64 {
	least := l.inHand()
	for s := range l.bounded {
		least = min(least, s.bound-s.used)
	}
	return least - taken
}
