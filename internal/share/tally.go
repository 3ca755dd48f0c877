package share

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// maxTallies bounds how many windows keep their count: of eight lengths, this and the next
// window, and two before under other shapes than fixed windows.
const maxTallies = 32

// tally is the smallest shares of one window over consecutive views, and the state
// to continue with the next view. Changes are named by number (see
// History.log): the views are those after change low up to the one after
// change high, which was the newest.
type tally struct {
	low, high int64
	shaped    bool  // some terms of the history have another shape than fixed windows
	lots      *lots // of the newest view
	// newest is the share in the newest view. kept is the least in those before it,
	// but for those whose next revision gives.
	newest, kept Bound
}

// value is the share of self in a view with these participants and terms.
func (c *lots) value() Bound {
	switch d := c.terms.at(c.w); {
	case d.reason != ReasonShare:
		return Bound{Reason: d.reason}
	case c.me != nil && c.me.takesPart(c.start):
		if !d.limited {
			return unbounded
		}
		permits := c.share(d.total)
		return Bound{Permits: permits, Burst: c.terms.burst(permits, quota.Limit{Permits: d.total, Window: c.w.Length})}
	case c.me != nil && c.me.until <= c.start:
		return Bound{Reason: ReasonLeft}
	}
	return Bound{Reason: ReasonJoining}
}

// tally returns the tally of window w over the views since change number low,
// the newest view included.
func (h *History) tally(w quota.Window, low int64) *tally {
	t := h.tallies[w]
	if t == nil || t.low != low || !t.shaped && h.shaped() {
		if len(h.tallies) == maxTallies {
			clear(h.tallies)
		}
		t = h.count(w, low)
		h.tallies[w] = t
	}
	h.extend(t)
	return t
}

// count counts the view after change number low.
func (h *History) count(w quota.Window, low int64) *tally {
	terms := h.newest()
	if low < h.changes {
		terms = h.change(low + 1).before
	}
	t := &tally{
		low: low, high: low, shaped: h.shaped(),
		lots: count(terms, w, h.self, h.membersAfter(low)),
		kept: unbounded,
	}
	t.newest = t.lots.value()
	return t
}

// extend goes on to the newest view, one change at a time.
func (h *History) extend(t *tally) {
	for ; t.high < h.changes; t.high++ {
		change := h.change(t.high + 1)
		for _, e := range change.edits {
			t.lots.replace(e.old, e.new)
		}
		t.lots = h.recount(t.lots, change.after, t.high+1)
		if t.shaped || !gives(change, t.lots) {
			t.kept = t.newest.least(t.kept)
		}
		t.newest = t.lots.value()
	}
}

// recount makes the counts of the view after change number n those by its terms.
func (h *History) recount(c *lots, t *terms, n int64) *lots {
	if !c.fits(t) {
		return count(t, c.w, c.self, h.membersAfter(n))
	}
	c.terms = t
	return c
}

// membersAfter returns the instances of the view after change number n.
func (h *History) membersAfter(n int64) map[string]*member {
	if n == h.changes {
		return h.members
	}
	there := maps.Clone(h.members)
	for _, d := range slices.Backward(h.log[len(h.log)-int(h.changes-n):]) {
		for _, e := range slices.Backward(d.edits) {
			if e.new != nil {
				delete(there, e.new.id)
			}
			if e.old != nil {
				there[e.old.id] = e.old
			}
		}
	}
	return there
}
