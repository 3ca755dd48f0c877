package window

import "github.com/quotient-limiter/quotient/internal/clock"

// Largest returns the permits of the largest request that is not TooLarge; 0: not known. Unlike
// Usage it looks at later windows also where others lend, which takes a plan for each.
func (g *Gate) Largest(at clock.Instant) int64 {
	g.mu.Lock()
	defer g.unlock()
	if g.currentLocked(at); !g.planLocked().Known {
		return 0
	}
	return g.largestLocked(Unbounded)
}

// fitsLocked reports whether one request can have n permits: a plan has room for them, now
// or later. It reports true while no plan has room for anything.
func (g *Gate) fitsLocked(n int64) bool {
	if n <= 1 || !g.planLocked().Known {
		return true
	}
	most := g.largestLocked(n)
	return n <= most || most == 0
}

// largestLocked returns the largest room of a plan, now or later if nothing changes, or what can be
// borrowed; or one that is enough. A request for more is refused at once, for it would block all
// behind it.
func (g *Gate) largestLocked(enough int64) int64 {
	most := g.roomLocked()
	if most < enough {
		most = max(most, g.ownLocked(enough))
	}
	return most
}

// ownLocked is that of this instance's own shares.
func (g *Gate) ownLocked(enough int64) (most int64) {
	most = g.planLocked().roomLater()
	if most < enough {
		most = max(most, g.farLocked().roomIn(func(l *Limit) (permits, burst int64) { return g.laterLocked(l.Window) }))
	}
	return most
}
