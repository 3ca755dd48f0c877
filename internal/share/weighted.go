package share

import "github.com/quotient-limiter/quotient/quota"

// The weighted split is the equal split of lots: an instance of weight w holds w of
// them, each with a rank of its own in every window, and gets the sum of their
// shares. So shares sum to the total exactly for all weights, everybody's
// long-run share is in proportion to its weight also where the total is small, and
// a join or leave changes the extra permits of hardly any other. With all weights 1
// it is the equal split.

// lotRank is the rank of an instance's n-th lot, from 0, in the window of seed.
func lotRank(id uint64, n int64, seed uint64) uint64 {
	if n > 0 {
		id = mix(id ^ mix(uint64(n)))
	}
	return mix(id ^ seed)
}

// weightOf is the weight of an instance under a policy.
func (t *terms) weightOf(m *member) int64 {
	if w, ok := t.rules.Weights[m.name]; ok {
		return min(max(w, 1), quota.MaxWeight)
	}
	return m.weight
}

func (t *terms) weighted() bool { return t.rules.Share == quota.ShareWeighted }

// lotsOf is how many lots an instance has.
func (t *terms) lotsOf(m *member) int64 {
	if !t.weighted() {
		return 1
	}
	return t.weightOf(m)
}

// Weight returns the weight of an instance under a policy, an operator's override
// included.
func Weight(p *quota.Policy, i *quota.Instance) int64 {
	return (&terms{rules: *p}).weightOf(newMember(i))
}
