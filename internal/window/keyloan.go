package window

import (
	"math"

	"github.com/quotient-limiter/quotient/quota"
)

// Lend issues up to n permits for a guest: they count here as if callers had them, but for
// the long limits, of which the guest takes permits itself. It keeps
// those that callers will want at the rate of this shortest window and the one before, unless all
// may be lent. It returns the sum
// of what was lent to the guest in these windows, 0 if nothing is lent now. docs/protocol.md,
// section 15.
func (a *Account) Lend(guest string, n, now int64, all bool) (told int64) {
	if a.windows == nil {
		return 0
	}
	keep := int64(0)
	if !all {
		keep = a.wanted(now)
	}
	if n = min(n, a.LeftToBorrowers()-keep); n <= 0 {
		return 0
	}
	return a.lend(guest, n)
}

// wanted returns how many permits callers will want until the shortest window ends.
func (a *Account) wanted(now int64) int64 {
	s := a.shortest()
	if s == nil || s.window != a.windows.Running[0] {
		return 0
	}
	wall := now + a.windows.Offset
	gone, rest := max(0, wall-s.window.Start()), max(0, s.window.End()-a.windows.Guard-wall)
	return int64(math.Ceil(float64(a.before+s.called()) * float64(rest) / float64(gone+int64(s.window.Length))))
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
