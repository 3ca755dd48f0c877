package share

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The split: of a total among n instances everyone gets total/n, and the total%n
// instances that rank highest in this window get one more. The rank is a hash of
// the incarnation and the window (rendezvous hashing): the extra permits reach
// every instance in turn, and a join or leave changes the extra permits of hardly
// any other.
//
// The hash is part of the protocol. Instances that ranked differently would
// hand out a permit twice, so it must never change within one major version:
//
//	rank(id, w) = mix(fnv1a64(id) XOR mix(mix(w.Length in ns) + w.Index))
//
// with mix the finalizer of splitmix64 (Steele, Lea, Flood 2014). Equal ranks
// go to the smaller ID first.

const golden = 0x9e3779b97f4a7c15

// hashID is FNV-1a, 64 bits. It is computed once per incarnation.
func hashID(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// mix is splitmix64's step and finalizer, a bijection of 64 bits.
func mix(x uint64) uint64 {
	x += golden
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}

// seedOf is the window's part of a rank, computed once per window.
func seedOf(w quota.Window) uint64 {
	return mix(mix(uint64(w.Length)) + uint64(w.Index))
}

// seed returns the seed of ranks by these terms. Under shapes other than fixed windows,
// protocol.Turn windows have the seed of the first: the same instances get the
// remainder for so long.
func (t *terms) seed(w quota.Window) uint64 {
	if t.shaped() {
		w = quota.WindowAt(w.Length*protocol.Turn, w.Start())
	}
	return seedOf(w)
}

// order says which of two lots comes first: the one with the higher rank, or else that of
// the smaller ID.
func order(a uint64, aID string, b uint64, bID string) int {
	if a == b {
		return cmp.Compare(aID, bID)
	}
	return cmp.Compare(b, a)
}

// split splits total permits evenly among all lots, and returns each member's part.
func (t *terms) split(total int64, members map[string]*member, seed uint64) map[string]int64 {
	type lot struct {
		rank uint64
		id   string
	}
	var lots []lot
	for _, m := range members {
		for n := range t.lotsOf(m) {
			lots = append(lots, lot{lotRank(m.hash, n, seed), m.id})
		}
	}
	slices.SortFunc(lots, func(a, b lot) int { return order(a.rank, a.id, b.rank, b.id) })
	shares, n := make(map[string]int64, len(members)), int64(len(lots))
	for i, l := range lots {
		shares[l.id] += max(total, 0) / n
		if int64(i) < max(total, 0)%n {
			shares[l.id]++
		}
	}
	return shares
}

// Of returns the total in force for window w in view v and every instance's share of
// it, by this one view: the settle rule, which looks at more than one view, may still
// hold shares below. Instances that do not take part in the window have share 0. So has
// everybody while the policy pauses, or needs a feature that this version lacks. ok is
// false where v has no limit of w's length in force.
func Of(v *protocol.View, w quota.Window) (total int64, shares map[string]int64, ok bool) {
	t := newTerms(v.Policy, v.PolicyRevision, v.Level, v.Pace)
	d := t.at(w)
	if !d.limited {
		return 0, nil, false
	}
	members := membersOf(v.Instances)
	part := maps.Clone(members)
	maps.DeleteFunc(part, func(_ string, m *member) bool { return !m.takesPart(w.Start()) })
	l, asks, _ := LevelOf(v, w)
	split := d.total - l.Claimed
	if d.reason != ReasonShare {
		split = 0
	}
	shares = t.split(split, part, t.seed(w))
	for id := range members {
		shares[id] += l.Claim(asks[id]) // 0 for those that take no part
	}
	return d.total, shares, true
}

// The weighted split is the equal split of lots. An instance of weight w holds w lots
// and gets the sum of their shares. Each lot has a rank of its own in every window. So
// shares sum to the total exactly for all weights. In the long run shares are in
// proportion to weights, also where the total is small. A join or leave changes the
// extra permits of hardly any other. With all weights 1 it is the equal split.

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
