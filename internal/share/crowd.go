package share

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// crowd is the instances of a view, their demands, and the order of their lots
// relative to those of self in one window. With it, counting a change of one
// instance takes O(its weight), not O(instances).
type crowd struct {
	start int64 // of the window
	live  map[string]*member

	// Worked out for these terms, this self and this seed; not if terms is nil.
	terms *terms
	self  *member
	seed  uint64
	lots  int64    // of all participants
	ranks []uint64 // of self's lots, best first
	// better[i] lots of others come before the i-th of self's and after the one
	// before it.
	better []int64

	entry *protocol.LevelEntry // asks are by it; nil if they are not worked out
	asks  []ask                // of all participants
}

func newCrowd(start int64, members []*member) *crowd {
	c := &crowd{start: start, live: make(map[string]*member, len(members))}
	for _, m := range members {
		c.live[m.id] = m
	}
	return c
}

func (c *crowd) clone() *crowd {
	if c == nil {
		return nil
	}
	d := *c
	d.live, d.better, d.asks = maps.Clone(c.live), slices.Clone(c.better), slices.Clone(c.asks)
	return &d
}

// replace puts one instance in the place of another; nil is none.
func (c *crowd) replace(old, new *member) {
	if c == nil {
		return
	}
	if old != nil {
		delete(c.live, old.id)
		c.count(old, -1)
		c.ask(old, -1)
	}
	if new != nil {
		c.live[new.id] = new
		c.count(new, 1)
		c.ask(new, 1)
	}
}

// ask adds (by = 1) or takes away (by = -1) the demand of one instance.
func (c *crowd) ask(m *member, by int64) {
	if c.entry == nil || !m.takesPart(c.start) {
		return
	}
	if demand := demandIn(c.entry.Demands, m.hash); demand > 0 {
		c.asks = counted(c.asks, demand, by)
	}
}

// level is the level of total permits of window w among n participants, by the
// terms; the zero Level if they have none in force.
func (c *crowd) level(t *terms, w quota.Window, total, n int64) Level {
	e := t.entry(w)
	if e == nil {
		return Level{}
	}
	if c.entry != e {
		c.entry, c.asks = e, nil
		for _, m := range c.live {
			c.ask(m, 1)
		}
	}
	return fill(total, t.floor, n, w.Length, c.asks)
}

// count adds (by = 1) or takes away (by = -1) the lots of one instance.
func (c *crowd) count(m *member, by int64) {
	switch {
	case c.terms == nil:
		return
	case c.self == nil || m.id == c.self.id:
		c.terms = nil // all of it is compared with self
		return
	case !m.takesPart(c.start):
		return
	}
	weight := c.terms.weightOf(m)
	c.lots += by * weight
	for n := range weight {
		rank := lotRank(m.hash, n, c.seed)
		i, _ := slices.BinarySearchFunc(c.ranks, rank, func(mine, theirs uint64) int {
			if ahead(mine, c.self.id, theirs, m.id) {
				return -1
			}
			return 1
		})
		c.better[i] += by
	}
}

// work makes the counts those of the terms, of self, which is in the view, and of
// the ranks by this seed.
func (c *crowd) work(t *terms, self *member, seed uint64) {
	if c.terms == t && c.self == self && c.seed == seed {
		return
	}
	own := t.weightOf(self)
	c.terms, c.self, c.seed, c.lots = t, self, seed, 0
	c.ranks, c.better = make([]uint64, own), make([]int64, own+1)
	for n := range own {
		c.ranks[n] = lotRank(self.hash, n, c.seed)
	}
	slices.SortFunc(c.ranks, func(a, b uint64) int {
		if a > b {
			return -1
		}
		return 1
	})
	for _, m := range c.live {
		if m != self {
			c.count(m, 1)
		}
	}
	if self.takesPart(c.start) {
		c.lots += own
	}
}

// part is the share of self, a participant, of total permits.
func (c *crowd) part(total int64, t *terms, self *member, seed uint64) int64 {
	c.work(t, self, seed)
	own := int64(len(c.ranks))
	each, left := total/c.lots, total%c.lots
	extra, place := int64(0), int64(0)
	for i := range own {
		if place += c.better[i]; place+i < left {
			extra++
		}
	}
	return own*each + extra
}
