package trace

import (
	"math"
	"math/big"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// splitByWeight gives each instance as many permits as it has of the first seats, of which
// there are as many as permits. Its seat k stands at (k+v)/weight, where v is smaller the
// higher it ranks.
func splitByWeight(p *quota.Policy, total int64, part []*protocol.Instance, w quota.Window, shares map[string]int64) {
	window, sum := windowOfRanks(p, w), new(big.Int)
	var all []seated
	for _, in := range part {
		s := seated{in.ID, new(big.Int).SetUint64(math.MaxUint64 - rankOf(in, window)), big.NewInt(weightOf(p, in))}
		all, sum = append(all, s), sum.Add(sum, s.weight)
	}
	for _, own := range all {
		// A share differs from total*weight/sum by less than 1 + n*weight/sum.
		about, apart := big.NewInt(total), big.NewInt(int64(len(all)))
		about.Div(about.Mul(about, own.weight), sum)
		apart.Add(apart.Div(apart.Mul(apart, own.weight), sum), big.NewInt(2))
		low, high := max(0, about.Int64()-apart.Int64()), about.Int64()+apart.Int64()
		for low < high {
			seat, before := (low+high)/2, new(big.Int)
			for i := range all {
				before.Add(before, all[i].before(&own, seat))
			}
			if before.Cmp(big.NewInt(total)) < 0 { // the seat has a permit
				low = seat + 1
			} else {
				high = seat
			}
		}
		shares[own.ID] += low
	}
}

// seated is an instance in a division by weight; v is in parts of 2^64.
type seated struct {
	ID        string
	v, weight *big.Int
}

// before is how many seats of s come before seat k of o: of two at one place that of the
// smaller ID comes first.
func (s *seated) before(o *seated, k int64) *big.Int {
	// Seat l of s stands before it if l * 2^64 * o.weight < room, or at the same place.
	room, other := new(big.Int).Lsh(big.NewInt(k), 64), new(big.Int)
	room.Mul(room.Add(room, o.v), s.weight)
	room.Sub(room, other.Mul(s.v, o.weight))
	if room.Sign() < 0 {
		return new(big.Int)
	}
	seats, rest := new(big.Int).DivMod(room, new(big.Int).Lsh(o.weight, 64), new(big.Int))
	if rest.Sign() > 0 || s.ID < o.ID {
		seats.Add(seats, big.NewInt(1))
	}
	return seats
}

// weightOf is an instance's weight: the policy's for its name, or else its own.
func weightOf(p *quota.Policy, in *protocol.Instance) int64 {
	weight, ok := p.Weights[in.Name]
	if !ok {
		weight = in.Weight
	}
	return min(max(weight, 1), quota.MaxWeight)
}
