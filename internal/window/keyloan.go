package window

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// Calls is what an instance knows of the calls of its own callers for a key, from the first time on
// that another one asks it for permits. The zero Calls knows nothing.
type Calls struct {
	flow   lending.Flow
	window quota.Window // the shortest one, in which others have asked last
	before int64        // permits that callers have used in the windows before
}

// Lend issues up to n permits for a guest: they count here as if callers had them, but for the long
// limits, of which the guest takes permits itself. It keeps those that callers will want until the
// shortest window ends, by the rule of a provider; all may be lent if calls is nil. It returns the sum
// of what was lent to the guest in these windows, 0 if nothing is lent now. docs/protocol.md,
// section 15.
func (a *Account) Lend(guest string, n, now int64, calls *Calls) (told int64) {
	if a.windows == nil {
		return 0
	}
	keep := int64(0)
	if calls != nil {
		keep = calls.wanted(a, now)
	}
	if n = min(n, a.LeftToBorrowers()-keep); n <= 0 {
		return 0
	}
	return a.lend(guest, n)
}

// wanted returns how many permits the callers of an account will want until the shortest window ends. Of
// less than half a permit it keeps none.
func (c *Calls) wanted(a *Account, now int64) int64 {
	s := a.shortest()
	if s == nil || s.window != a.windows.Running[0] {
		return 0
	}
	milliOf := func(wall int64) float64 { return float64(wall-a.windows.Offset) / milli }
	w, start, length := s.window, milliOf(s.window.Start()), float64(s.window.Length)/milli
	switch {
	case c.window == w:
	case c.window.Length == w.Length && c.window.Index+1 == w.Index:
		c.before += a.before
		c.flow.Look(start, float64(c.before))
		c.flow.Begin(w.Index, start, length)
	default: // what callers have used in this window and in the one before is known, but not when
		*c = Calls{before: a.before}
		c.flow.Look(start-length, 0)
		c.flow.Begin(w.Index-1, start-length, length)
		c.flow.Look(start, float64(c.before))
		c.flow.Begin(w.Index, start, length)
	}
	c.window = w
	c.flow.Look(float64(now)/milli, float64(c.before+s.called()))
	keep := c.flow.Forecast(float64(now)/milli-start, length-float64(a.windows.Guard)/milli, 0)
	if keep < 0.5 {
		return 0
	}
	return int64(math.Ceil(keep))
}

// Rate returns how many permits callers have used in the shortest window, and for how long it
// has run and will.
func (a *Account) Rate(now int64) (used, gone, rest int64) {
	s := a.shortest()
	if s == nil || s.window != a.windows.Running[0] {
		return 0, 0, 0
	}
	wall := now + a.windows.Offset
	return s.called(), wall - s.window.Start(), s.window.End() - a.windows.Guard - wall
}

// Borrow adds what a host has lent, by the sum that it has told, and returns how much that is. The
// total of a window is what all instances may issue in it.
func (a *Account) Borrow(host string, windows []quota.Window, told int64, total func(quota.Window) int64) int64 {
	n := a.borrow(host, windows, told, total)
	a.repay()
	return n
}
