package share

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// places is how many windows of one length keep their count: this and the next
// one; and those before, where the history has other shapes than fixed windows.
func (h *History) places() int64 {
	if h.shaped() {
		return 4
	}
	return 2
}

// maxTallies bounds how many windows of all lengths keep their count.
const maxTallies = 32

// heads counts a view's participants in one window.
type heads struct {
	n      int64   // participants
	better int64   // of them, those that rank above self
	held   int64   // the same by the ranks of the turn; 0 unless shaped
	self   *member // this instance, nil if the view lacks it
}

// result is the bound of self by one view, or by several together.
type result struct {
	permits int64
	burst   int64 // under quota.ShapeBucket; Unbounded else
	reason  Reason
}

// tally is the smallest shares of one window over consecutive views, and the state
// to continue with the next view. Changes are named by number (see
// History.log): the views are those after change low up to the one after
// change high, which was the newest.
type tally struct {
	used      bool
	w         quota.Window
	start     int64  // w.Start()
	seed      uint64 // of w
	rank      uint64 // of self in w
	shaped    bool   // some terms of the history have another shape than fixed windows
	turn      uint64 // the seed of those
	turnRank  uint64 // of self by it
	low, high int64
	heads     heads // of the newest view
	terms     *terms
	deal      deal // of terms in w
	// newest is the share in the newest view. kept is the least in those before it,
	// but for those whose next revision gives.
	newest, kept result
	// crowd is the newest view's instances, nil unless some terms of the history
	// share by weight or by demand.
	crowd *crowd
}

// count adds (by = 1) or takes away (by = -1) one instance.
func (t *tally) count(to *heads, m *member, self string, by int64) {
	if m.id == self {
		to.self = m
		if by < 0 {
			to.self = nil
		}
	}
	if !m.takesPart(t.start) {
		return
	}
	to.n += by
	if m.id != self && ahead(rankOf(m.hash, t.seed), m.id, t.rank, self) {
		to.better += by
	}
	if t.shaped && m.id != self && ahead(rankOf(m.hash, t.turn), m.id, t.turnRank, self) {
		to.held += by
	}
}

// value is the share of self in a view with these heads, these instances, these
// terms and this deal.
func (t *tally) value(c *heads, crowd *crowd, terms *terms, d *deal) result {
	switch {
	case d.reason != ReasonShare:
		return result{0, 0, d.reason}
	case c.self != nil && c.self.takesPart(t.start):
		if !d.limited {
			return result{Unbounded, Unbounded, ReasonShare}
		}
		permits := t.permits(c, crowd, terms, d)
		return result{permits, terms.burst(permits, quota.Limit{Permits: d.total, Window: t.w.Length}), ReasonShare}
	case c.self != nil && c.self.until <= t.start:
		return result{0, 0, ReasonLeft}
	}
	return result{0, 0, ReasonJoining}
}

// permits is the share of self, a participant.
func (t *tally) permits(c *heads, crowd *crowd, terms *terms, d *deal) int64 {
	better := c.better
	if terms.shaped() {
		better = c.held
	}
	if terms.weighted {
		return crowd.part(d.total, terms, c.self, t.seedFor(terms))
	}
	if !terms.byDemand {
		return part(d.total, c.n, better)
	}
	l, own := crowd.level(terms, t.w, d.total, c.n), int64(0)
	if crowd.entry != nil {
		own = l.Claim(protocol.DemandFor(demandIn(crowd.entry.Demands, c.self.hash), t.w.Length))
	}
	return own + part(d.total-l.Claimed, c.n, better)
}

// seedFor is the seed that ranks permits which do not come out even.
func (t *tally) seedFor(terms *terms) uint64 {
	if terms.shaped() {
		return t.turn
	}
	return t.seed
}

// least is the bound by two views together; the reason is r's where it allows no
// more.
func (r result) least(o result) result {
	if o.permits < r.permits {
		o.burst = min(o.burst, r.burst)
		return o
	}
	r.burst = min(o.burst, r.burst)
	return r
}

// tally returns the tally of window w over the views since change number low,
// the newest view included.
func (h *History) tally(w quota.Window, low int64) *tally {
	t := h.slot(w)
	if !t.used || t.w != w || t.low != low {
		h.build(t, w, low)
	}
	h.extend(t)
	return t
}

// slot returns where w's tally is or shall be.
func (h *History) slot(w quota.Window) *tally {
	for _, t := range h.tallies {
		if t.w == w {
			return t
		}
	}
	// The windows of a length take turns in their places.
	places := h.places()
	for _, t := range h.tallies {
		if t.w.Length == w.Length && (t.w.Index-w.Index)%places == 0 {
			return t
		}
	}
	if len(h.tallies) < maxTallies {
		h.tallies = append(h.tallies, &tally{})
		return h.tallies[len(h.tallies)-1]
	}
	h.victim = (h.victim + 1) % maxTallies
	return h.tallies[h.victim]
}

// build counts the newest view, then undoes change by change down to low.
func (h *History) build(t *tally, w quota.Window, low int64) {
	*t = tally{used: true, w: w, start: w.Start(), seed: seedOf(w), low: low, high: h.count}
	t.rank = rankOf(hashID(h.self), t.seed)
	if t.shaped = h.shaped(); t.shaped {
		t.turn = turnOf(w)
		t.turnRank = rankOf(hashID(h.self), t.turn)
	}
	for _, m := range h.members {
		t.count(&t.heads, m, h.self, 1)
	}
	if h.crowded() {
		t.crowd = newCrowd(t.start, h.members)
	}
	t.terms = h.terms[len(h.terms)-1].terms
	t.deal = t.terms.at(w)
	t.newest = t.value(&t.heads, t.crowd, t.terms, &t.deal)
	t.kept = result{Unbounded, Unbounded, ReasonShare}

	c, crowd, terms, d := t.heads, t.crowd.clone(), t.terms, t.deal
	for i := len(h.log) - 1; i >= len(h.log)-int(h.count-low); i-- {
		for _, e := range slices.Backward(h.log[i].edits) {
			h.recount(t, &c, crowd, e.new, e.old)
		}
		after := terms
		if h.log[i].prev != nil {
			terms, d = h.log[i].prev, h.log[i].prev.at(w)
		}
		if t.shaped || !gives(h.log[i].edits, terms, after, w, crowd, c.n) {
			// The newest of several equal views gives the reason.
			t.kept = t.kept.least(t.value(&c, crowd, terms, &d))
		}
	}
}

// crowded reports whether some terms of the history share by weight or by demand.
func (h *History) crowded() bool {
	return slices.ContainsFunc(h.terms, func(s span) bool { return s.weighted || s.byDemand })
}

// extend goes on to the newest view, one change at a time.
func (h *History) extend(t *tally) {
	if t.high < h.count && (t.crowd == nil && h.crowded() || !t.shaped && h.shaped()) {
		h.build(t, t.w, t.low)
		return
	}
	for ; t.high < h.count; t.high++ {
		d := &h.log[len(h.log)-int(h.count-t.high)]
		for _, e := range d.edits {
			h.recount(t, &t.heads, t.crowd, e.old, e.new)
		}
		before := t.terms
		if d.prev != nil {
			t.terms = h.after(t.high + 1)
			t.deal = t.terms.at(t.w)
		}
		if t.shaped || !gives(d.edits, before, t.terms, t.w, t.crowd, t.heads.n) {
			t.kept = t.newest.least(t.kept)
		}
		t.newest = t.value(&t.heads, t.crowd, t.terms, &t.deal)
	}
}

// recount replaces one instance by another; nil is none.
func (h *History) recount(t *tally, c *heads, crowd *crowd, old, new *member) {
	if old != nil {
		t.count(c, old, h.self, -1)
	}
	if new != nil {
		t.count(c, new, h.self, 1)
	}
	crowd.replace(old, new)
}

// after returns the terms of the view after change number n: those that the next
// change of policy replaced, or else the newest.
func (h *History) after(n int64) *terms {
	for i := len(h.log) - int(h.count-n); i < len(h.log); i++ {
		if h.log[i].prev != nil {
			return h.log[i].prev
		}
	}
	return h.terms[len(h.terms)-1].terms
}
