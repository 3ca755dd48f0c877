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
		u := WindowUsage{a.window, a.bound, a.used + taken}
		if u.Share == Unbounded {
			u.Share = 0
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b WindowUsage) int { return cmp.Compare(a.Window.Length, b.Window.Length) })
	return all
}
