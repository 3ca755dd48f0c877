package share

import (
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// The weighted split is the equal split of lots: an instance of weight w holds w
// of them, each with a rank of its own in every window, and gets what they get
// together. So shares sum to the total exactly for all weights, everybody's
// long-run share is in proportion to its weight also where the total is small,
// and who joins or leaves changes the extra permits of hardly anybody else. With
// all weights 1 it is the equal split. It takes O(sum of weights).

// lotRank is the rank of an instance's n-th lot, from 0, in the window of seed.
func lotRank(id uint64, n int64, seed uint64) uint64 {
	if n > 0 {
		id = mix(id ^ mix(uint64(n)))
	}
	return rankOf(id, seed)
}

// weightOf is the weight of an instance under a policy.
func (t *terms) weightOf(m *member) int64 {
	if t.policy != nil {
		if w, ok := t.policy.Weights[m.name]; ok {
			return min(max(w, 1), quota.MaxWeight)
		}
	}
	return m.weight
}

// lots sums the weights of those who take part in a window that starts at start.
func lots(live map[string]*member, start int64, t *terms) (n int64) {
	for _, m := range live {
		if m.takesPart(start) {
			n += t.weightOf(m)
		}
	}
	return n
}

// weightedPart is the share of self, who takes part, of total permits.
func weightedPart(total int64, live map[string]*member, self *member, start int64, seed uint64, t *terms) int64 {
	all, own := lots(live, start, t), t.weightOf(self)
	each, left := total/all, total%all
	if left == 0 {
		return own * each
	}
	ranks := make([]uint64, own)
	for n := range own {
		ranks[n] = lotRank(self.hash, n, seed)
	}
	slices.SortFunc(ranks, func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
	// better[i] others come before the i-th of the own lots and after the one
	// before it.
	better := make([]int64, own+1)
	for _, m := range live {
		if m == self || !m.takesPart(start) {
			continue
		}
		for n := range t.weightOf(m) {
			rank := lotRank(m.hash, n, seed)
			i, _ := slices.BinarySearchFunc(ranks, rank, func(mine, theirs uint64) int {
				if ahead(mine, self.id, theirs, m.id) {
					return -1
				}
				return 1
			})
			better[i]++
		}
	}
	extra, place := int64(0), int64(0)
	for i := range own {
		if place += better[i]; place+i < left {
			extra++
		}
	}
	return own*each + extra
}

// Weighted returns every instance's share of total permits in window w under
// policy p's weights. The shares sum to total exactly. Each ID must occur once;
// their order does not matter. A negative total counts as 0.
func Weighted(total int64, instances []quota.Instance, p *quota.Policy, w quota.Window) map[string]int64 {
	shares := make(map[string]int64, len(instances))
	t := &terms{policy: p}
	var order []ranked
	seed := seedOf(w)
	for i := range instances {
		m := newMember(&instances[i])
		shares[m.id] = 0
		for n := range t.weightOf(m) {
			order = append(order, ranked{lotRank(m.hash, n, seed), m.id})
		}
	}
	if len(order) == 0 {
		return shares
	}
	total = max(total, 0)
	each, left := total/int64(len(order)), total%int64(len(order))
	sortRanked(order)
	for i, r := range order {
		shares[r.id] += each
		if int64(i) < left {
			shares[r.id]++
		}
	}
	return shares
}

func sortRanked(order []ranked) {
	slices.SortFunc(order, func(a, b ranked) int {
		if ahead(a.rank, a.id, b.rank, b.id) {
			return -1
		}
		return 1
	})
}

// Weight returns the weight of an instance under a policy, an operator's override
// included.
func Weight(p *quota.Policy, i *quota.Instance) int64 {
	return (&terms{policy: p}).weightOf(newMember(i))
}
