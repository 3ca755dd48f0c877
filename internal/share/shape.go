package share

import (
	"math"
	"math/bits"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// Under shapes other than fixed windows a permit lies in spans of time that begin
// at any instant. Its bound is then the least over all windows that a span which
// ends now can touch, on any host's clock: so a gain of an instance is held back
// for a window's length, until no span holds another's permits of it.
// docs/proof/protocol.md section 10 says why the sum stays under the total.

// boundShape returns the shapes that bind a permit issued at the instant now: those
// of the newest view and of every one that any window of its reach may look back
// to. Skew is twice the largest clock error of their policies, Transit the largest
// guard of those that have such a shape.
func (h *History) boundShape(now int64) (s shape.Shape) {
	lasts, fixed := h.lasts(), false
	for _, t := range h.terms {
		if now > lasts(t) || t.shaped() && !h.bent { // a longer window that came since brings no shape back
			continue
		}
		switch t.rules.Shape {
		case quota.ShapeSliding:
			s.Sliding = true
		case quota.ShapeBucket:
			s.Bucket = true
		case quota.ShapeFixed:
			fixed = true
		}
		s.Skew, s.Transit = max(s.Skew, 2*int64(t.rules.ClockError)), max(s.Transit, int64(t.transit()))
	}
	s.Unaligned = s.Any() && !fixed
	return s
}

// lasts tells of terms until when a window in reach looks back to their views.
func (h *History) lasts() func(t span) int64 {
	longest := int64(0)
	for _, t := range h.terms {
		for _, l := range t.lengths {
			longest = max(longest, int64(l))
		}
	}
	return func(t span) int64 {
		return add(t.end, int64(t.rules.Settle)+3*longest+2*int64(t.rules.ClockError))
	}
}

// straight returns the instant from which only fixed windows bind, if the newest view stays.
func (h *History) straight() int64 {
	from, lasts := int64(math.MinInt64), h.lasts()
	for _, t := range h.terms {
		if t.shaped() {
			from = max(from, add(lasts(t), 1))
		}
	}
	return from
}

// outlive notes whether a shape other than fixed windows still binds at the instant now. One that went before would hold
// back what an instance gains, for a window's reach, as long as the history has it.
func (h *History) outlive(now int64) { h.bent = h.bent && now < h.straight() }

// shaped reports whether some view that may still bind has a shape other than fixed windows.
func (h *History) shaped() bool { return h.bent }

func (t *terms) shaped() bool {
	return t.rules.Shape == quota.ShapeSliding || t.rules.Shape == quota.ShapeBucket
}

// transit returns the time that a call may take to the provider.
func (t *terms) transit() time.Duration {
	if !t.shaped() {
		return 0
	}
	return t.rules.Guard
}

// span returns the windows of a length that bind a permit issued at the wall time
// wall: the last is the one that holds it, and the first the oldest that its reach touches.
func (h *History) span(length time.Duration, wall int64) (first, last quota.Window) {
	return quota.WindowAt(length, sub(wall, h.reach(length))), quota.WindowAt(length, wall)
}

// reach returns how far back the windows of a length go that bind a permit; 0 under fixed windows.
func (h *History) reach(length time.Duration) (reach int64) {
	if !h.shaped() {
		return 0
	}
	for _, t := range h.terms {
		reach = max(reach, int64(protocol.ReachOf(length, t.transit(), t.rules.ClockError)))
	}
	return reach
}

// Bound returns how many permits of window w this instance may have issued by the
// instant now: the smallest of its shares over every view held from S before the
// window's start until now. Under other shapes it is the least over all windows in
// reach of the instant now, or of the nearest instant of w.
//
// For a window that has not started it returns the bound that will hold if nothing
// changes. frozen is NotFrozen while the instance is fresh. While it is stale under the
// outage rule hold, the lookback starts at frozen or before, so that shares do not
// grow: it is the newest proof less the settle time.
func (h *History) Bound(w quota.Window, now, offset, frozen int64) Bound {
	wall := min(max(add(now, offset), w.Start()), w.End()-1)
	b := h.bound(w, now, offset, frozen)
	if !h.shaped() {
		return b
	}
	first, last := h.span(w.Length, wall)
	for back := last; back.Index > first.Index; {
		back.Index--
		b = b.least(h.bound(back, now, offset, frozen))
	}
	return b
}

// burst is the part of the burst that goes with a share of a limit: in proportion,
// and at least one permit, without which a share is worth nothing.
func (t *terms) burst(permits int64, of quota.Limit) int64 {
	if t.rules.Shape != quota.ShapeBucket {
		return Unbounded
	}
	if permits <= 0 || of.Permits <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(permits), uint64(protocol.BurstOf(t.policy, of)))
	n, _ := bits.Div64(hi, lo, uint64(of.Permits)) // permits <= of.Permits
	return max(1, int64(n))
}
