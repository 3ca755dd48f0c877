package share

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// maxTallies bounds how many windows keep their count: of eight lengths, this and the next
// window, and two before under other shapes than fixed windows.
const maxTallies = 32

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
	w         quota.Window
	low, high int64
	shaped    bool  // some terms of the history have another shape than fixed windows
	lots      *lots // of the newest view; nil before it was counted
	deal      deal  // of its terms
	// newest is the share in the newest view. kept is the least in those before it,
	// but for those whose next revision gives.
	newest, kept result
}

// value is the share of self in a view with these participants and this deal.
func (c *lots) value(d *deal) result {
	switch {
	case d.reason != ReasonShare:
		return result{0, 0, d.reason}
	case c.me != nil && c.me.takesPart(c.start):
		if !d.limited {
			return result{Unbounded, Unbounded, ReasonShare}
		}
		permits := c.share(d.total)
		return result{permits, c.terms.burst(permits, quota.Limit{Permits: d.total, Window: c.w.Length}), ReasonShare}
	case c.me != nil && c.me.until <= c.start:
		return result{0, 0, ReasonLeft}
	}
	return result{0, 0, ReasonJoining}
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
	if t.lots == nil || t.w != w || t.low != low || !t.shaped && h.shaped() {
		h.build(t, w, low)
	}
	h.extend(t)
	return t
}

// slot returns where w's tally is or shall be.
func (h *History) slot(w quota.Window) *tally {
	i := slices.IndexFunc(h.tallies, func(t *tally) bool { return t.w == w })
	if i < 0 && len(h.tallies) < maxTallies {
		h.tallies = append(h.tallies, &tally{})
	}
	if i < 0 {
		i = len(h.tallies) - 1
	}
	t := h.tallies[i]
	copy(h.tallies[1:], h.tallies[:i])
	h.tallies[0] = t
	return t
}

// build counts the newest view, then undoes change by change down to low.
func (h *History) build(t *tally, w quota.Window, low int64) {
	newest := h.newest()
	*t = tally{w: w, low: low, high: h.count, shaped: h.shaped(), lots: count(newest, w, h.self, h.members), deal: newest.at(w)}
	t.newest = t.lots.value(&t.deal)
	t.kept = result{Unbounded, Unbounded, ReasonShare}

	c, d := t.lots.clone(), t.deal
	for n := h.count; n > low; n-- {
		change := &h.log[len(h.log)-1-int(h.count-n)]
		for _, e := range slices.Backward(change.edits) {
			c.replace(e.new, e.old)
		}
		if change.before != change.after {
			d = change.before.at(w)
		}
		c = h.recount(c, change.before, n-1)
		if t.shaped || !gives(change, c) {
			// The newest of several equal views gives the reason.
			t.kept = t.kept.least(c.value(&d))
		}
	}
}

// extend goes on to the newest view, one change at a time.
func (h *History) extend(t *tally) {
	for ; t.high < h.count; t.high++ {
		change := &h.log[len(h.log)-int(h.count-t.high)]
		for _, e := range change.edits {
			t.lots.replace(e.old, e.new)
		}
		if change.before != change.after {
			t.deal = change.after.at(t.w)
		}
		t.lots = h.recount(t.lots, change.after, t.high+1)
		if t.shaped || !gives(change, t.lots) {
			t.kept = t.newest.least(t.kept)
		}
		t.newest = t.lots.value(&t.deal)
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
	if n == h.count {
		return h.members
	}
	there := maps.Clone(h.members)
	for _, d := range slices.Backward(h.log[len(h.log)-int(h.count-n):]) {
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
