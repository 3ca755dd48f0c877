package window

import (
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// Largest returns the permits of the largest request that is not TooLarge; 0: not known. Unlike
// Usage it looks at later windows also where others lend, which takes a plan for each.
func (g *Gate) Largest(at clock.Instant) int64 {
	g.mu.Lock()
	defer g.unlock()
	if g.currentLocked(at); !g.planLocked().Known {
		return 0
	}
	return g.largestLocked(shape.Unbounded)
}

// fitsLocked reports whether one request can have n permits: a plan has room for them, now or soon. It
// reports true while no plan has room for anything.
func (g *Gate) fitsLocked(n int64) bool {
	if n <= 1 || !g.planLocked().Known {
		return true
	}
	most := g.largestLocked(n)
	return n <= most || most == 0
}

// largestLocked returns the largest room of a plan, now or soon, or what can be borrowed; or one that is
// enough. A request for more is refused at once, for it would block all behind it.
func (g *Gate) largestLocked(enough int64) int64 {
	most := lentRoom(g.planLocked())
	if most < enough {
		most = max(most, g.ownLocked(enough))
	}
	return most
}

// soon is for how many of the shortest limit's windows a request may block all behind it because it wants
// more than the share is until then.
const soon = 64

// ownLocked is largestLocked of this instance's own shares, and of what can be borrowed in later windows. It looks at few
// windows, since the instances in each are counted under the lock.
func (g *Gate) ownLocked(enough int64) (most int64) {
	p := g.planLocked()
	most = p.RoomLater()
	for windows := int64(1); most < enough && windows <= soon && len(p.Limits) > 0; windows *= 8 {
		if w, counts := after(p.Limits[0].Window, windows); counts {
			later := g.foreseeLocked(p.StartOf(w))
			most = max(most, later.RoomLater(), lentRoom(later))
		}
	}
	return most
}
