package window

import (
	"cmp"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// WindowUsage is what was issued in the current window of one limit.
type WindowUsage struct {
	Window      quota.Window
	Share, Used int64
	// Left is how many permits this limit leaves now.
	Left int64
	// Start and End bound the window, in corrected wall time. Where aligned
	// windows do not bind, it is the one at whose end the next permit comes back;
	// Used is then what counts against the share.
	Start, End int64
}

// usageLocked returns what is left of a limit, of which taken permits are not
// booked yet.
func (g *Gate) usageLocked(a *account, taken int64) WindowUsage {
	unaligned, now := g.mu.terms.Shape.Unaligned, g.mu.last
	u := WindowUsage{Window: a.window, Share: a.bound, Used: a.used + taken, Start: a.window.Start(), End: a.window.End()}
	if u.Share == Unbounded {
		u.Share = 0
		return u
	}
	u.Left = max(0, a.left(unaligned)-taken)
	if !unaligned {
		return u
	}
	if a.slide != nil {
		u.Used = a.slide.sum + taken
	}
	next := now
	if whole := a.most(); u.Left < whole {
		next = a.comes(u.Left+1, a.bound, now, unbooked{taken, g.mu.edge})
	}
	if next < u.End-g.shares.Offset()+int64(2*a.window.Length) { // else it is not known
		u.End = next + g.shares.Offset()
		u.Start = u.End - int64(a.window.Length)
	}
	return u
}

// most is what the account's limit leaves if nothing is issued for a while.
func (a *account) most() int64 {
	if a.bucket != nil {
		return min(a.bound, a.bucket.burst)
	}
	return a.bound
}

// Windows returns the current windows of all limits that bind at the instant at,
// shortest first.
func (g *Gate) Windows(at clock.Instant) []WindowUsage {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.currentLocked(at)
	taken := g.mu.published - s.Left()
	all := make([]WindowUsage, 0, len(g.mu.ledger.accounts))
	for i := range g.mu.ledger.accounts {
		a := &g.mu.ledger.accounts[i]
		if !a.binds {
			continue
		}
		all = append(all, g.usageLocked(a, taken))
	}
	slices.SortFunc(all, func(a, b WindowUsage) int { return cmp.Compare(a.Window.Length, b.Window.Length) })
	return all
}
