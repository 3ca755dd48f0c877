package share

import (
	"math/bits"
	"slices"

	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/quota"
)

// Sharing by demand: everybody claims what it asks for, up to a level that is
// the same for all (water-filling: max-min fair, see Bertsekas and Gallager,
// Data Networks, 6.5.2), and what nobody claims is divided equally. The level is
// found once, from the demands reported at one revision; each share follows from
// it and from the instance's own demand at that revision. See quota.Level.

// Fill returns the division of total permits of one window among instances with
// these demands (in permits of one window), of which floor percent are never
// claimed. It is exact and takes O(n log n); the order of demands does not
// matter.
func Fill(total, floor int64, demands []int64) quota.LevelLimit {
	pool := total - floorOf(total, floor)
	var l quota.LevelLimit
	if len(demands) == 0 {
		return l
	}
	l.Base = (total - pool) / int64(len(demands))
	asks := make([]int64, len(demands))
	for i, d := range demands {
		asks[i] = min(max(0, d-l.Base), quota.MaxPermits)
	}
	slices.Sort(asks)
	// The level rises past one ask after the other: who asks for less is served
	// whole, the others share what is left of the pool equally.
	left := pool
	for i, ask := range asks {
		n := int64(len(asks) - i)
		if ask > left/n {
			l.Most = left / n
			l.Claimed = pool - left + n*l.Most
			return l
		}
		left -= ask
	}
	l.Most, l.Claimed = asks[len(asks)-1], pool-left
	return l
}

// floorOf is the part of total that is always divided equally, rounded up.
func floorOf(total, percent int64) int64 {
	percent = min(max(percent, 0), 100)
	return (total*percent + 99) / 100
}

// claim returns what an instance with that demand claims of total permits by
// level l, and what is left for all to divide equally. If the total was lowered
// since, claims shrink in proportion, so that the floor is kept.
func claim(total, floor int64, l *quota.LevelLimit, demand int64, off safeguard.Set) (own, rest int64) {
	own = min(l.Claim(demand), l.Claimed)
	pool := total - floorOf(total, floor)
	if l.Claimed <= pool || off.Off(safeguard.ClaimsScale) {
		return own, max(0, total-l.Claimed)
	}
	hi, lo := bits.Mul64(uint64(own), uint64(pool))
	n, _ := bits.Div64(hi, lo, uint64(l.Claimed)) // own <= Claimed, so n <= pool
	return int64(n), total - pool
}

// Claim returns what an instance with that demand claims of window w's total in
// view v, and what is left for all to divide equally.
func Claim(v *quota.View, w quota.Window, demand int64) (own, rest int64) {
	t := newTerms(v.Policy, v.PolicyRevision, v.Level, 0)
	d := t.at(w)
	if d.reason != ReasonShare {
		return 0, 0
	}
	return t.claims(w, d.total, demand)
}
