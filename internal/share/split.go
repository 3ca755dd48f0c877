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
// with mix as protocol.Mix. Equal ranks
// go to the smaller ID first.

// hashID is FNV-1a, 64 bits. It is computed once per incarnation.
func hashID(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64()
}

// seedOf is the window's part of a rank, computed once per window.
func seedOf(w quota.Window) uint64 {
	return protocol.Mix(protocol.Mix(uint64(w.Length)) + uint64(w.Index))
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

// part is an instance in the division of one window.
type part struct {
	id string
	at uint64 // of its rank: the highest is the least
}

func orderOf(hash, seed uint64) uint64 { return ^protocol.Mix(hash ^ seed) }

// ranks orders two parts by rank, the highest first; of two at one place the smaller ID comes
// first.
func (p *part) ranks(o *part) int {
	if c := cmp.Compare(p.at, o.at); c != 0 {
		return c
	}
	return cmp.Compare(p.id, o.id)
}

// split splits total permits among the members, and returns each one's part.
func (t *terms) split(total int64, members map[string]*member, seed uint64) map[string]int64 {
	parts, shares := make([]part, 0, len(members)), make(map[string]int64, len(members))
	for _, m := range members {
		parts = append(parts, part{m.id, orderOf(m.hash, seed)})
	}
	slices.SortFunc(parts, func(a, b part) int { return a.ranks(&b) })
	for i := range parts {
		shares[parts[i].id] = partOf(max(total, 0), t.owns(int64(len(parts))), int64(i))
	}
	return shares
}

// Of returns the total in force for window w in view v and every instance's share of
// it, by this one view: the settle rule, which looks at more than one view, may still
// hold shares below. Instances that do not take part in the window have share 0. So has
// everybody while the policy pauses, or needs a feature that this version lacks. ok is
// false where v has no limit of w's length in force.
func Of(v *protocol.View, w quota.Window) (total int64, shares map[string]int64, ok bool) {
	t := newTerms(v.Policy, v.PolicyRevision)
	return t.of(v, w, t.seed(w))
}

// of is Of by the terms of a view, or those of its keys, with a seed of the ranks.
func (t *terms) of(v *protocol.View, w quota.Window, seed uint64) (total int64, shares map[string]int64, ok bool) {
	d := t.at(w)
	if !d.limited {
		return 0, nil, false
	}
	members := membersOf(v.Instances)
	part := maps.Clone(members)
	maps.DeleteFunc(part, func(_ string, m *member) bool { return !m.takesPart(w.Start()) })
	split := d.total
	if d.reason != ReasonShare {
		split = 0
	}
	shares = t.split(split, part, seed)
	for id := range members {
		if _, has := shares[id]; !has {
			shares[id] = 0
		}
	}
	return d.total, shares, true
}

func membersOf(instances []protocol.Instance) map[string]*member {
	members := make(map[string]*member, len(instances))
	for i := range instances {
		members[instances[i].ID] = newMember(&instances[i])
	}
	return members
}
