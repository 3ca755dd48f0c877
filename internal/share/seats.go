package share

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// The weighted split is a divisor method, as parliaments use for their seats: seat k =
// 0, 1, 2, ... of an instance of weight w stands at (k + v) / w, where v in [0, 1) is
// the instance's rank in this window. The first seats, as many as the total, have one
// permit each. So shares sum to the total exactly for all weights. If the total grows or
// another leaves, nobody's share falls. In the long run shares are in proportion to
// weights, also where the total is small. With all weights the same it is the equal
// split.
//
// Of n instances, one of weight w has total*w/W permits, for the sum W of all weights,
// and less than 1 + n*w/W more or fewer.

// part is an instance in the division of one window.
type part struct {
	id     string
	at     uint64 // v, in parts of 2^64
	weight int64
}

// orderOf returns v of a part: the highest rank is the least.
func orderOf(hash, seed uint64) uint64 { return ^protocol.Mix(hash ^ seed) }

// ranks orders two parts by rank, the highest first; of two at one place the smaller ID comes
// first.
func (p *part) ranks(o *part) int {
	if p.at != o.at {
		return cmp.Compare(p.at, o.at)
	}
	return cmp.Compare(p.id, o.id)
}

// scaled returns where seat k stands, times weight*by, in parts of 2^64.
func (p *part) scaled(k, by int64) (hi, lo uint64) {
	over, lo := bits.Mul64(p.at, uint64(by))
	return uint64(k)*uint64(by) + over, lo
}

// before returns how many seats of p come before each of a few seats of o, from seat first
// on. Of two seats at the same place that of the smaller ID comes first.
func (p *part) before(o *part, first int64) (n [seatsKept]int64) {
	hi, lo := o.scaled(first, p.weight)
	ownHi, own := p.scaled(0, o.weight)
	lo, borrow := bits.Sub64(lo, own, 0)
	distance := int64(hi) - int64(ownHi) - int64(borrow) // from seat 0 of p, times both weights
	for i := range n {
		if distance >= 0 {
			n[i] = distance / o.weight
			if distance%o.weight != 0 || lo != 0 || p.id < o.id {
				n[i]++
			}
		}
		distance += p.weight
	}
	return n
}

// seats returns how many seats each part has, of as many as the total.
func seats(total int64, parts []part) map[string]int64 {
	type seat struct {
		*part
		k int64
	}
	shares, n, sum := make(map[string]int64, len(parts)), int64(len(parts)), int64(0)
	for _, p := range parts {
		sum += p.weight
	}
	// So many are sure, and so many more are possible.
	var open []seat
	left := total
	for i := range parts {
		p := &parts[i]
		shares[p.id] = timesOver(max(0, total-n), p.weight, sum)
		left -= shares[p.id]
		for k := range 3 + 2*n*p.weight/sum {
			open = append(open, seat{p, shares[p.id] + k})
		}
	}
	slices.SortFunc(open, func(a, b seat) int {
		hi, lo := a.scaled(a.k, b.weight)
		otherHi, other := b.scaled(b.k, a.weight)
		return cmp.Or(cmp.Compare(hi, otherHi), cmp.Compare(lo, other), cmp.Compare(a.id, b.id))
	})
	for _, s := range open[:min(left, int64(len(open)))] {
		shares[s.id]++
	}
	return shares
}

// timesOver returns a*b/c, rounded down, for numbers that are not negative and b <= c.
func timesOver(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(hi, lo, uint64(c))
	return int64(n)
}
