package share

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Bound is how many permits of one window this instance may have issued.
type Bound struct {
	// Permits is the bound, or Unbounded if no view of the lookback limits
	// windows of this length.
	Permits int64
	// Burst is how many of them may be issued at once under quota.ShapeBucket;
	// Unbounded if no view of the lookback has that shape.
	Burst int64
	// Reason is the reason for Permits.
	Reason Reason
	// Most is the largest Permits that windows like this one often have by the newest view;
	// 0 if that gives no share.
	Most int64
	// Instances take part in the window by the newest view.
	Instances int
}

var unbounded = Bound{Permits: Unbounded, Burst: Unbounded}

// least is the bound by two views together. The reason is b's where o allows no less, and what is
// by the newest view is b's.
func (b Bound) least(o Bound) Bound {
	if o.Permits < b.Permits {
		b.Permits, b.Reason = o.Permits, o.Reason
	}
	b.Burst = min(b.Burst, o.Burst)
	return b
}

// bound is Bound for fixed windows. It returns the smallest share of w by all views
// held from S before the window's start until now. Views whose next revision gives do
// not count (see gives). The first call for a window takes O(instances), later ones
// O(changes since).
func (h *History) bound(w quota.Window, now, offset, frozen int64) Bound {
	return h.boundBy(h.cache, w, now, offset, frozen)
}

// boundBy is bound, or that of a key, by a cache of the window since a change number.
func (h *History) boundBy(cached func(w quota.Window, low int64) *boundCache, w quota.Window, now, offset, frozen int64) Bound {
	if !h.Started() {
		return Bound{Reason: ReasonJoining}
	}
	from := min(h.lookback(w, now, offset), frozen)
	t := cached(w, h.changes-int64(len(h.log)-h.older(from)))
	b := t.newest.least(t.kept)
	switch {
	case w.Start() >= h.until:
		b.Permits, b.Reason = 0, ReasonLeft
	case from < h.since && !h.First(), sub(w.Start(), offset) < h.opens(w.Length):
		b.Permits, b.Reason = 0, ReasonJoining
	}
	return b
}

// First reports whether this instance is the first of a fleet: nobody else could issue permits
// before its history began, so it waits out no view. Under shapes it does, because earlier
// windows count too.
func (h *History) First() bool { return h.first && !h.shaped() }

// opens returns the instant from which windows of a length may start that nobody who ended by
// h.began has issued permits of. Another's clock may have been clockError fast, and this one's may
// be as much slow. The two drift apart until such a window ends. opens binds the first of a fleet;
// for others it is earlier than the settle rule allows.
func (h *History) opens(length time.Duration) int64 {
	return add(h.began, int64(2*h.clockError+(2*h.clockError+length)/protocol.DriftBound))
}

// lookback returns the instant from which views count for window w: S before
// its start, and no later than now. Each view's own S says until when the view
// matters; the largest S of those that matter counts. So a change of S acts as
// the larger of both for the longer of both.
func (h *History) lookback(w quota.Window, now, offset int64) int64 {
	start := sub(w.Start(), offset)
	from := now
	for _, t := range h.terms {
		if at := min(sub(start, int64(t.rules.Settle)), now); t.end >= at {
			from = min(from, at)
		}
	}
	return from
}

// Held returns the instances that are gone from the newest view, while views that had them
// still bind the shares of window w, and when that ends, in corrected wall time. So much of
// the total is held back for them, because they may still issue it.
func (h *History) Held(w quota.Window, now, offset int64) (ids []string, until int64) {
	last := h.changes - int64(len(h.log)-h.older(h.lookback(w, now, offset)))
	for n := h.changes; n > last; n-- {
		c := h.change(n)
		for _, e := range c.edits {
			promised := e.new != nil && e.new.until <= w.Start() && !h.shaped() // then the view before does not count: see gives
			if e.old == nil || promised || !e.old.takesPart(w.Start()) || h.members[e.old.id] != nil || slices.Contains(ids, e.old.id) {
				continue
			}
			ids = append(ids, e.old.id)
			settled := add(add(c.at, int64(c.before.rules.Settle)), offset)
			until = max(until, quota.WindowAt(w.Length, settled).End())
		}
	}
	slices.Sort(ids)
	return ids, until
}

// Rules are the parts of the policies that bind an instance beside its share.
type Rules struct {
	// Settle is the largest S of the lookback's views, Freshness the smallest
	// S', Guard the largest g, ClockError the smallest e. Edges is the largest g of those views that
	// limit windows of up to quota.MaxWindow: only at the edges of these it takes something away.
	Settle, Freshness, Guard, Edges, ClockError time.Duration
	// Outage is the newest view's, or the default.
	Outage quota.Outage
}

// Rules returns the rules at the instant now. A view counts for its own S after
// it was replaced. Before the first Reset they are the defaults.
func (h *History) Rules(now int64) Rules {
	own := &h.newest().rules
	r := Rules{Settle: own.Settle, Freshness: own.Freshness, ClockError: own.ClockError, Outage: own.Outage}
	for _, t := range h.terms {
		if t.end >= sub(now, int64(t.rules.Settle)) {
			r.Settle = max(r.Settle, t.rules.Settle)
		}
	}
	for _, t := range h.terms {
		if t.end < sub(now, int64(r.Settle)) {
			continue
		}
		r.Freshness, r.ClockError = min(r.Freshness, t.rules.Freshness), min(r.ClockError, t.rules.ClockError)
		r.Guard = max(r.Guard, t.rules.Guard)
		if t.short {
			r.Edges = max(r.Edges, t.rules.Guard)
		}
	}
	return r
}

// Lengths returns the window lengths that may bind a permit that is issued now,
// shortest first: those that some view of the lookback of the length's current
// window limits.
func (h *History) Lengths(now, offset int64) []time.Duration {
	lengths := make([]time.Duration, 0, 8)
	for i := range slices.Backward(h.terms) { // the newest need no lookback
		t := &h.terms[i]
		for _, length := range t.lengths {
			if !slices.Contains(lengths, length) && h.binds(t, length, now, offset) {
				lengths = append(lengths, length)
			}
		}
	}
	slices.Sort(lengths)
	return lengths
}

// totals returns what the newest view gives that limits windows of w's length.
func (h *History) totals(w quota.Window) (d allotment) {
	for _, t := range slices.Backward(h.terms) {
		if d = t.at(w); d.limited {
			break
		}
	}
	return d
}

// binds reports whether a limit of a length in t may bind a permit that is issued now.
func (h *History) binds(t *span, length time.Duration, now, offset int64) bool {
	first, w := h.span(length, add(now, offset))
	for ; w.Index >= first.Index; w.Index-- {
		if t.at(w).limited && (t.end == math.MaxInt64 || t.end >= h.lookback(w, now, offset)) {
			return true
		}
	}
	return false
}
