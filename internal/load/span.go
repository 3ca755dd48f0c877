package load

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Shapes other than aligned windows promise this of the whole fleet
// (docs/proof/protocol.md, section 10):
//
//   - sliding: the slots that begin within any window's length, and the guard on top,
//     hold at most the total;
//   - bucket: any span of time holds at most the instances' bursts at its start and
//     the permits that accrue until its end. What a guard takes off the bursts is not
//     judged.
//
// A permit tells the start of its slot and counts in the cell around that. So permits
// of n cells were issued within n cells and a slot. No span is called over that may be
// right. A true span that is over is missed only by what lies in a slot and a cell at
// its ends: 2 parts of 500.

// Span is a span of time, what was issued in it, and what might have been.
type Span struct {
	// Window is the limit's, set only where there are several limits.
	Window   string    `json:"window,omitempty"`
	Start    time.Time `json:"start"`
	LengthNs int64     `json:"length_ns"`
	Issued   int64     `json:"issued"`
	Allowed  int64     `json:"allowed"`
}

// SpanSummary is what the spans come to that a shape promises something of.
type SpanSummary struct {
	// CellNs is the length of the cells of time that make up spans.
	CellNs int64 `json:"cell_ns"`
	// Judged counts spans: under sliding those that begin with a permit, under bucket
	// the fullest of those that end with one.
	Judged int64 `json:"judged"`
	// Over counts those with more permits than allowed, of any limit.
	Over int64 `json:"over"`
	// Worst is the span with the least room left, or the most permits too many;
	// nil without any. MaxOverRatio is issued over allowed there; where nothing is
	// allowed, over 1.
	Worst        *Span   `json:"worst,omitempty"`
	MaxOverRatio float64 `json:"max_over_ratio"`
}

// take adds a span of so many cells, of the limit that window names.
func (s *SpanSummary) take(window string, first, cells, issued, allowed int64) {
	s.Judged++
	over := issued - allowed
	if over > 0 {
		s.Over++
	}
	if s.Worst == nil || over > s.Worst.Issued-s.Worst.Allowed {
		s.Worst = &Span{Window: window, Start: time.Unix(0, first*s.CellNs).UTC(), LengthNs: cells * s.CellNs, Issued: issued, Allowed: allowed}
		s.MaxOverRatio = ratio(issued, max(allowed, 1))
	}
}

// spans judges all limits' spans; nil for aligned windows.
func (r *Run) spans(lengths []time.Duration) *SpanSummary {
	if r.Shape == nil {
		return nil
	}
	s := &SpanSummary{CellNs: int64(r.Shape.Cell)}
	for _, length := range lengths {
		take := func(first, cells, issued, allowed int64) {
			s.take(nameOf(length, lengths), first, cells, issued, allowed)
		}
		if r.Shape.Kind == quota.ShapeBucket {
			r.bucketSpans(length, take)
		} else {
			r.slidingSpans(length, take)
		}
	}
	return s
}

// nameOf names a limit by its window; empty if there is one limit only.
func nameOf(length time.Duration, lengths []time.Duration) string {
	if len(lengths) < 2 {
		return ""
	}
	return length.String()
}

// limitFrom returns the total that binds what is issued from a cell on.
func (r *Run) limitFrom(length time.Duration, cell int64) (total int64, limited bool) {
	from := cell * int64(r.Shape.Cell)
	return r.Timeline.spanLimit(length, from, from+2*int64(r.Shape.Cell))
}

// slidingSpans tells each span of a window's length, and the transit, that begins with
// a permit. A span that reaches into a time without such a limit is promised nothing.
func (r *Run) slidingSpans(length time.Duration, take func(first, cells, issued, allowed int64)) {
	cells := int64((length + r.Shape.Transit) / r.Shape.Cell)
	sum, next := int64(0), 0 // of the counts before next
	for _, c := range r.Counts {
		for ; next < len(r.Counts) && r.Counts[next].Index < c.Index+cells; next++ {
			sum += r.Counts[next].certain()
		}
		total, limited := r.limitFrom(length, c.Index)
		if _, still := r.limitFrom(length, c.Index+cells); limited && still && c.certain() > 0 {
			take(c.Index, cells, sum, total)
		}
		sum -= c.certain()
	}
}

// level is the fullest span that ends with a cell. It is a leaky bucket, which finds
// the worst of all spans in one pass: each permit adds as many units as a window has
// cells, and each cell takes off the total. Once all has leaked out another span
// begins. More than the burst and the permits that accrue in the last slot is a
// violation.
type level struct {
	first   int64 // the span's first cell
	issued  int64
	burst   int64
	accrued int64 // in units
}

// remembered is for how many windows without a permit a level is kept: a bucket is
// full again after one.
const remembered = 2

// bucketSpans tells, for each cell with permits, the fullest span that ends there.
func (r *Run) bucketSpans(length time.Duration, take func(first, cells, issued, allowed int64)) {
	part := int64(length / r.Shape.Cell)
	var l level
	at := int64(math.MinInt64) // the cell that l ends before
	for _, c := range r.Counts {
		if c.certain() == 0 {
			continue
		}
		if far := c.Index - remembered*part; at < far { // all has leaked out
			l, at = level{}, far
		}
		total, limited := int64(0), false
		for ; at <= c.Index; at++ {
			if total, limited = r.limitFrom(length, at); !limited {
				l = level{}
				continue
			}
			if l.issued*part <= l.accrued {
				l = level{first: at, burst: r.Shape.atOnce(total)}
			}
			l.accrued += total
		}
		if !limited {
			continue
		}
		l.issued += c.certain()
		if then, ok := r.limitFrom(length, at); ok {
			total = max(total, then) // in the slot's course
		}
		take(l.first, at-l.first, l.issued, l.burst+(l.accrued+total)/part)
	}
}

// Shape is over which spans of time limits count that do not count in aligned
// windows, and how their permits were counted.
type Shape struct {
	// Kind is quota.ShapeSliding or quota.ShapeBucket.
	Kind quota.Shape
	// Cell is the length of the cells of time by which permits are counted, and of
	// slots: a whole part of the shortest window. A permit is in the cell of the
	// instant that it tells, the beginning of the slot in which it was issued.
	Cell time.Duration
	// Burst is the policy's, under quota.ShapeBucket.
	Burst int64
	// Transit is the policy's guard: the time that a call may take to the provider.
	Transit time.Duration
	// Crowd is how many instances may have had shares at one time, at most.
	Crowd int
}

// atOnce is how many permits the instances may issue at one instant under a total:
// the sum of their bursts. Each is the policy's burst in proportion to the share,
// rounded down, and at least one permit. As shares are equal, these sum to the burst or to the
// number of instances, whichever is more.
func (s *Shape) atOnce(total int64) int64 {
	if s.Burst <= 0 {
		return total
	}
	return min(total, max(s.Burst, int64(s.Crowd)))
}

// allowed is how many permits an aligned window may hold beyond its limit's total
// by the shape; 0 where that is no more than the total.
func (r *Run) allowed(length time.Duration, total int64) int64 {
	s := r.Shape
	if s == nil || s.Kind != quota.ShapeBucket {
		return 0
	}
	part := int64(length / s.Cell) // and the slot in which the last permit was issued
	return s.atOnce(total) + total*(part+1)/part
}
