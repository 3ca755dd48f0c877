package share

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// lots counts the participants of one view in one window, and the order of their lots
// relative to those of self. With it, a change of one instance takes O(its weight),
// not O(instances).
type lots struct {
	terms *terms // by which they are counted
	w     quota.Window
	start int64  // of w
	seed  uint64 // of the ranks
	self  string
	me    *member  // self, nil if the view lacks it
	n     int64    // participants
	total int64    // lots of all participants
	ranks []uint64 // of self's lots, best first
	// better[i] lots of others come before the i-th of self's and after the one
	// before it.
	better []int64

	entry *protocol.LevelEntry // asks are by it; nil if no demand counts
	asks  []ask                // of all participants
}

// count counts members by the terms.
func count(t *terms, w quota.Window, self string, members map[string]*member) *lots {
	c := &lots{terms: t, w: w, start: w.Start(), seed: t.seed(w), self: self, entry: t.entry(w)}
	own := int64(1)
	if m := members[self]; m != nil {
		own = t.lotsOf(m)
	}
	c.ranks, c.better = make([]uint64, own), make([]int64, own+1)
	for n := range own {
		c.ranks[n] = lotRank(hashID(self), n, c.seed)
	}
	slices.SortFunc(c.ranks, func(a, b uint64) int { return order(a, "", b, "") })
	for _, m := range members {
		c.add(m, 1)
	}
	return c
}

// fits reports whether the counts are those by other terms too, and whether self has as
// many lots as were counted.
func (c *lots) fits(t *terms) bool {
	return (c.me == nil || t.lotsOf(c.me) == int64(len(c.ranks))) && (t == c.terms || t.entry(c.w) == c.entry &&
		t.shaped() == c.terms.shaped() && t.weighted() == c.terms.weighted() && (!t.weighted() || maps.Equal(t.rules.Weights, c.terms.rules.Weights)))
}

// replace puts one instance in the place of another; nil is none.
func (c *lots) replace(old, new *member) {
	if old != nil {
		c.add(old, -1)
	}
	if new != nil {
		c.add(new, 1)
	}
}

// add adds (by = 1) or takes away (by = -1) one instance.
func (c *lots) add(m *member, by int64) {
	if m.id == c.self {
		c.me = m
		if by < 0 {
			c.me = nil
		}
	}
	if !m.takesPart(c.start) {
		return
	}
	own := c.terms.lotsOf(m)
	c.n += by
	c.total += by * own
	if c.entry != nil {
		if demand := demandIn(c.entry.Demands, m.hash); demand > 0 {
			c.asks = counted(c.asks, demand, by)
		}
	}
	if m.id == c.self {
		return
	}
	for n := range own {
		rank := lotRank(m.hash, n, c.seed)
		i, _ := slices.BinarySearchFunc(c.ranks, rank, func(mine, theirs uint64) int { return order(mine, c.self, theirs, m.id) })
		c.better[i] += by
	}
}

// level is the level of total permits by the terms; the zero Level if no demand counts.
func (c *lots) level(t *terms, total int64) Level {
	if c.entry == nil {
		return Level{}
	}
	return fill(total, t.rules.Floor, c.n, c.w.Length, c.asks)
}

// share is the share of self, a participant, of total permits: its claim, and its part
// of what nobody claims.
func (c *lots) share(total int64) (share int64) {
	l := c.level(c.terms, total)
	if c.entry != nil {
		share = l.Claim(protocol.DemandFor(demandIn(c.entry.Demands, c.me.hash), c.w.Length))
	}
	each, left := (total-l.Claimed)/c.total, (total-l.Claimed)%c.total
	place := int64(0)
	for i := range c.ranks {
		share += each
		if place += c.better[i]; place+int64(i) < left {
			share++
		}
	}
	return share
}
