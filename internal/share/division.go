package share

import (
	"math/bits"

	"github.com/quotient-limiter/quotient/quota"
)

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
	total int64   // weight of all participants
	// ahead[i] is how many seats of others come before seat first+i of self, if sought.
	// In an equal division first is 0: seat 0 tells of all.
	ahead  [seatsKept]int64
	first  int64
	sought bool
}

// seatsKept is how many seats of self a division knows: those around its last one. A change
// of one instance seldom moves the last one further.
const seatsKept = 4

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
	c := &division{terms: t, w: w, key: key, start: w.Start(), seed: t.seedFor(key, w), sought: !t.weighted()}
	hash := hashID(self)
	c.hash, c.own = hash, part{self, orderOf(hash, c.seed), 1}
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
		c.sought = c.sought && !c.terms.weighted() // its weight may be another one
	}
	if !r.takesPart(c.start) {
		return
	}
	c.n += by
	if c.terms.weighted() {
		c.total += by * r.weightIn(c.terms)
	} else {
		c.total += by
	}
	if c.sought && !own {
		c.addSeats(r, by)
	}
}

// isOwn reports whether a row is self's. Hashes are compared first: they are at hand.
func (c *division) isOwn(r *row) bool { return r.hash == c.hash && r.id == c.own.id }

// addSeats adds or takes away the seats of another instance, which takes part.
func (c *division) addSeats(r *row, by int64) {
	p := part{r.id, orderOf(r.hash, c.seed), 1}
	if !c.terms.weighted() {
		if p.ranks(&c.own) < 0 {
			c.ahead[0] += by
		}
		return
	}
	p.weight = r.weightIn(c.terms)
	for i, n := range p.before(&c.own, c.first) {
		c.ahead[i] += by * n
	}
}

// share is the share of self, a participant, of total permits.
func (c *division) share(total int64, all pastMembers) (share int64) {
	if c.terms.weighted() {
		return c.seats(total, all)
	}
	return partOf(total, c.terms.owns(c.n), c.ahead[0])
}

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
func (c *division) most(total int64) (most int64) {
	if c.terms.owners > 0 { // the ranks are the same in all windows
		return partOf(total, c.terms.owns(c.n), c.ahead[0])
	}
	part, rest := bits.Mul64(uint64(total), uint64(c.terms.weightIn(c.me)))
	n, left := bits.Div64(part, rest, uint64(c.total))
	if most = int64(n); left*often >= uint64(c.total) {
		most++
	}
	return most
}

// seats is how many of total permits self has by weight: all of its seats before which
// there are fewer seats than permits.
func (c *division) seats(total int64, all pastMembers) int64 {
	low, high := int64(0), total // seats below low have a permit, those from high on have none
	next := timesOver(total, c.terms.weightIn(c.me), c.total)
	for tries := 0; ; tries++ {
		if c.sought {
			for i, n := range c.ahead {
				k := c.first + int64(i)
				missing := k + n - total + 1 // permits, until seat k has one
				if missing > 0 {
					high, next = min(high, k), k-1-timesOver(missing, c.own.weight, c.total)
					break
				}
				low, next = max(low, k+1), k+1+timesOver(-missing, c.own.weight, c.total)
			}
		}
		if low >= high {
			return low
		}
		if tries > seatsKept { // it never took so many
			next = low + (high-low)/2
		}
		c.seek(min(max(next-seatsKept/2, low), high-1), all)
	}
}

// seek counts the seats before those of self from number first on.
func (c *division) seek(first int64, all pastMembers) {
	c.own.weight = c.terms.weightIn(c.me)
	c.first, c.ahead, c.sought = first, [seatsKept]int64{}, true
	all.each(func(r *row, by int64) {
		if r.takesPart(c.start) && !c.isOwn(r) {
			c.addSeats(r, by)
		}
	})
}
