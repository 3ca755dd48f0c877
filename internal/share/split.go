package share

import (
	"hash/fnv"
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

// turnOf is a window's seed under shapes other than fixed windows: that of the
// first of protocol.Turn windows, so that the permits that do not come out even stay
// where they are for so long.
func turnOf(w quota.Window) uint64 {
	return seedOf(quota.WindowAt(w.Length*protocol.Turn, w.Start()))
}

// rankOf is the rank of an instance in the window of seed.
func rankOf(id, seed uint64) uint64 { return mix(id ^ seed) }

// ahead reports whether the instance with rank a and ID aID comes before the
// one with rank b and ID bID.
func ahead(a uint64, aID string, b uint64, bID string) bool {
	if a != b {
		return a > b
	}
	return aID < bID
}

// part is the share of the instance that n-1 others stand beside, of whom
// better rank higher. n is at least 1 and total at least 0.
func part(total, n, better int64) int64 {
	if better < total%n {
		return total/n + 1
	}
	return total / n
}

// Equal returns every instance's share of total permits in window w. The
// shares sum to total exactly, and any two differ by at most 1. Each ID must
// occur once; their order does not matter. A negative total counts as 0.
func Equal(total int64, ids []string, w quota.Window) map[string]int64 {
	seed := seedOf(w)
	lots := make([]lot, len(ids))
	for i, id := range ids {
		lots[i] = lot{rankOf(hashID(id), seed), id}
	}
	return dealt(total, lots)
}

// lot is a part of an instance in a split, and its rank.
type lot struct {
	rank uint64
	id   string
}

// dealt splits total permits evenly among lots, and returns what each instance has.
func dealt(total int64, lots []lot) map[string]int64 {
	slices.SortFunc(lots, func(a, b lot) int {
		if ahead(a.rank, a.id, b.rank, b.id) {
			return -1
		}
		return 1
	})
	shares, n := make(map[string]int64, len(lots)), int64(len(lots))
	for i, l := range lots {
		shares[l.id] += part(max(total, 0), n, int64(i))
	}
	return shares
}

// Of returns the total in force for window w in view v and every instance's
// share of it, by this one view: the settle rule, which looks at more than one
// view, may still hold shares below. Instances that do not take part in
// the window have share 0, and so has everybody while the policy pauses or needs
// a feature that this version lacks. ok is false where v has no limit of w's
// length in force.
func Of(v *protocol.View, w quota.Window) (total int64, shares map[string]int64, ok bool) {
	t := newTerms(v.Policy, v.PolicyRevision, v.Level, v.Pace)
	d := t.at(w)
	if !d.limited {
		return 0, nil, false
	}
	var part []quota.Instance
	ids := make([]string, 0, len(v.Instances))
	for i := range v.Instances {
		if protocol.TakesPart(&v.Instances[i], w.Start()) {
			part = append(part, v.Instances[i])
			ids = append(ids, v.Instances[i].ID)
		}
	}
	ranks := w // the window whose ranks count
	if t.shaped() {
		ranks = quota.WindowAt(w.Length*protocol.Turn, w.Start())
	}
	switch {
	case d.reason != ReasonShare:
		shares = Equal(0, ids, w)
	case t.weighted:
		shares = Weighted(d.total, part, v.Policy, ranks)
	default:
		l, asks, _ := LevelOf(v, w)
		shares = Equal(d.total-l.Claimed, ids, ranks)
		for id, n := range asks {
			shares[id] += l.Claim(n)
		}
	}
	for i := range v.Instances {
		if id := v.Instances[i].ID; !protocol.TakesPart(&v.Instances[i], w.Start()) {
			shares[id] = 0
		}
	}
	return d.total, shares, true
}
