package share

import (
	"github.com/quotient-limiter/quotient/quota"
)

// maxCaches bounds how many windows keep their count: of eight lengths this window, the next one and one
// far ahead, two before under other shapes than fixed windows, and those that are over.
const maxCaches = 96

// boundCache has the smallest shares of one window over consecutive views, and the state
// to continue with the next view. Changes are named by number (see
// History.log): the views are those after change low up to the one after
// change high, which was the newest.
type boundCache struct {
	low, high int64
	key       *Key      // of which the shares are; nil: the provider
	keyTerms  keyTerms  // of the key
	shaped    bool      // History.shaped when the counting began
	division  *division // of the newest view
	// newest is the share in the newest view. kept is the least in those before it,
	// but for those whose next revision gives.
	newest, kept Bound
	// without is the latest change after a view of these that gives this instance nothing; 0 if there is none.
	without int64
}

// value is the share of self in the view that was divided, with these instances.
func (c *division) value() Bound {
	b := Bound{Instances: int(c.n)}
	switch d := c.terms.at(c.w); {
	case d.reason != ReasonShare:
		b.Reason = d.reason
	case c.me != nil && c.me.until <= c.start:
		b.Reason = ReasonLeft
	case c.me == nil || c.me.from > c.start:
		b.Reason = ReasonJoining
	case !d.limited:
		b.Permits, b.Burst = Unbounded, Unbounded
	default:
		b.Permits, b.Most = c.share(d.total), c.most(d.total)
		b.Burst = c.terms.burst(b.Permits, quota.Limit{Permits: d.total, Window: c.w.Length})
	}
	return b
}

// cache returns the smallest shares of window w over the views since change number low,
// the newest view included.
func (h *History) cache(w quota.Window, low int64) *boundCache {
	t := h.caches[w]
	logged := h.changes - int64(len(h.log))                                         // earlier changes are forgotten
	if t != nil && low == h.changes && t.high >= logged && t.shaped == h.shaped() { // of the newest view alone
		h.extend(t)
		t.low, t.kept, t.without = low, unbounded, 0
		return t
	}
	if t == nil || t.low != low || t.shaped != h.shaped() {
		if len(h.caches) == maxCaches {
			clear(h.caches)
		}
		t = h.begin(w, low, nil)
		h.caches[w] = t
	}
	h.extend(t)
	return t
}

// begin counts the view after change number low, for a key if it is not nil.
func (h *History) begin(w quota.Window, low int64, key *Key) *boundCache {
	terms := h.newest()
	if low < h.changes {
		terms = h.change(low + 1).before
	}
	t := &boundCache{low: low, high: low, key: key, shaped: key == nil && h.shaped(), kept: unbounded}
	all := pastMembers{h, low}
	terms = t.of(terms)
	t.division = newDivision(terms, w, key.hash(), h.self, all)
	t.newest = t.division.value()
	return t
}

// extend goes on to the newest view, one change at a time.
func (h *History) extend(t *boundCache) {
	for ; t.high < h.changes; t.high++ {
		change := h.change(t.high + 1)
		for _, e := range change.edits {
			t.division.replace(e.old, e.new)
		}
		all := pastMembers{h, t.high + 1}
		t.division = t.division.by(t.of(change.after), all)
		if t.shaped || !gives(change, t.of(change.before), t.of(change.after), t.division.w) {
			if t.newest.Permits == 0 {
				t.without = t.high + 1
			}
			t.kept = t.newest.least(t.kept)
		}
		t.newest = t.division.value()
	}
}
