package share

import "github.com/quotient-limiter/quotient/quota"

// division is that of one view in one window, as far as self's share depends on it.
// A change of one instance takes O(1), not O(instances).
type division struct {
	terms *terms // by which it is counted
	w     quota.Window
	key   *uint64 // that is divided; nil: the provider
	start int64   // of w
	seed  uint64  // of the ranks
	me    *member // self, nil if the view lacks it
	own   part    // self's
	hash  uint64  // of self's ID
	n     int64   // participants
	ahead int64   // those of them, but for self, that rank before it
}

// pastMembers are the instances of the view that a history held after one of its changes.
type pastMembers struct {
	h     *History
	after int64 // the change's number
}

// each calls add with each of these instances and 1. It goes back from the newest
// view: an instance that a later change has put there is counted, and then taken out with
// -1.
func (c pastMembers) each(add func(r *row, by int64)) {
	c.h.looks += int64(len(c.h.rows))
	for i := range c.h.rows {
		add(&c.h.rows[i], 1)
	}
	for n := c.h.changes; n > c.after; n-- {
		edits := c.h.change(n).edits
		for i := range edits {
			e := &edits[len(edits)-1-i]
			if e.new != nil {
				r := rowOf(e.new)
				add(&r, -1)
			}
			if e.old != nil {
				r := rowOf(e.old)
				add(&r, 1)
			}
		}
	}
}

// newDivision counts the instances by the terms, for a key if it is not nil.
func newDivision(t *terms, w quota.Window, key *uint64, self string, all pastMembers) *division {
	c := &division{terms: t, w: w, key: key, start: w.Start(), seed: t.seedFor(key, w), hash: hashID(self)}
	c.own = part{self, orderOf(c.hash, c.seed)}
	all.each(c.add)
	return c
}

// by returns the division of the same view by other terms; the instances are those of the
// view.
func (c *division) by(t *terms, all pastMembers) *division {
	if t != c.terms && (t.shaped() != c.terms.shaped() || !t.dividesAs(c.terms)) {
		return newDivision(t, c.w, c.key, c.own.id, all)
	}
	c.terms = t
	return c
}

// replace puts one instance in the place of another; nil is none.
func (c *division) replace(old, new *member) {
	if old != nil {
		r := rowOf(old)
		c.add(&r, -1)
	}
	if new != nil {
		r := rowOf(new)
		c.add(&r, 1)
	}
}

// add adds (by = 1) or takes away (by = -1) one instance.
func (c *division) add(r *row, by int64) {
	own := c.isOwn(r)
	if own {
		c.me = r.member
		if by < 0 {
			c.me = nil
		}
	}
	if !r.takesPart(c.start) {
		return
	}
	c.n += by
	at := orderOf(r.hash, c.seed) // the ID, which is not at hand, is read only if it decides
	if !own && (at < c.own.at || at == c.own.at && (&part{r.id, at}).ranks(&c.own) < 0) {
		c.ahead += by
	}
}

// isOwn reports whether a row is self's. Hashes are compared first: they are at hand.
func (c *division) isOwn(r *row) bool { return r.hash == c.hash && r.id == c.own.id }

// share is the share of self, a participant, of total permits.
func (c *division) share(total int64) int64 { return partOf(total, c.terms.owns(c.n), c.ahead) }

// partOf is the part of the one with a rank, from 0, if the first n divide a total equally.
func partOf(total, n, rank int64) int64 {
	part := total / n
	switch {
	case rank >= n:
		return 0
	case rank < total%n:
		part++
	}
	return part
}

// often is how many windows make up a rotation for most.
const often = 64

// most is the largest share of total permits that self, a participant, has in one of so many
// windows on average: its part rounded down, or up if the remainder comes that often.
func (c *division) most(total int64) int64 {
	if c.terms.owners > 0 { // the ranks are the same in all windows
		return c.share(total)
	}
	if most := total / c.n; total%c.n*often < c.n {
		return most
	}
	return total/c.n + 1
}
