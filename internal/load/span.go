package load

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// This file judges shapes that are not aligned windows, by what they promise of
// the whole fleet (docs/protocol.md, section 10):
//
//   - sliding: the slots that begin within one window's length, wherever that
//     begins, hold at most the total;
//   - bucket: a span of time, however long, holds at most what the instances may
//     issue at once where it begins, and what accrues until it ends.
//
// A permit tells the beginning of its slot, and is counted in the cell around
// that. So permits of n cells were issued within the n cells and a slot. A bucket
// accrues in that slot too; slots that begin within a window's length are counted
// together by a sliding window, and the lemma there holds until the last of them
// ends. So no span is refused that may have been right; of a span of true time
// that is over, all is seen but what lies in a slot and a cell at its ends: 2
// parts of 500.

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
	// Judged counts spans. Under the shape sliding they are those that begin with
	// a cell in which permits were issued, under the shape bucket those that end
	// with one: of all that end there, the one that comes nearest to what it may
	// hold.
	Judged int64 `json:"judged"`
	// Over counts those with more permits than allowed, of any limit.
	Over int64 `json:"over"`
	// Worst is the span with the least room left, or the most permits too many;
	// nil without any. MaxOverRatio is issued over allowed there; where nothing is
	// allowed, over 1.
	Worst        *Span   `json:"worst,omitempty"`
	MaxOverRatio float64 `json:"max_over_ratio"`
}

// take adds a span.
func (s *SpanSummary) take(span Span) {
	s.Judged++
	over := span.Issued - span.Allowed
	if over > 0 {
		s.Over++
	}
	if s.Worst == nil || over > s.Worst.Issued-s.Worst.Allowed {
		s.Worst = &span
		s.MaxOverRatio = ratio(span.Issued, max(span.Allowed, 1))
	}
}

// spans judges all limits' spans; nil for aligned windows.
func (r *Run) spans(lengths []time.Duration) *SpanSummary {
	if r.Shape == nil {
		return nil
	}
	s := &SpanSummary{CellNs: int64(r.Shape.Cell)}
	for _, length := range lengths {
		name := ""
		if len(lengths) > 1 {
			name = length.String()
		}
		take := func(first, cells int64, issued, allowed int64) {
			at := first * int64(r.Shape.Cell)
			s.take(Span{Window: name, Start: time.Unix(0, at).UTC(), LengthNs: cells * int64(r.Shape.Cell), Issued: issued, Allowed: allowed})
		}
		if r.Shape.Kind == quota.ShapeBucket {
			r.bucketSpans(length, take)
		} else {
			r.slidingSpans(length, take)
		}
	}
	return s
}

// limitFrom returns the total that binds what is issued from a cell on.
func (r *Run) limitFrom(length time.Duration, cell int64) (total int64, limited bool) {
	from := cell * int64(r.Shape.Cell)
	return r.Timeline.spanLimit(length, from, from+int64(r.Shape.Cell+r.Shape.Slot))
}

// slidingSpans tells each span of a window's length that begins with a permit. A
// span that reaches into a time without such a limit is promised nothing.
func (r *Run) slidingSpans(length time.Duration, take func(first, cells, issued, allowed int64)) {
	cells := int64(length / r.Shape.Cell)
	sum, next := int64(0), 0 // of the counts before next
	for _, c := range r.Counts {
		for next < len(r.Counts) && r.Counts[next].Index < c.Index+cells {
			sum += r.Counts[next].certain()
			next++
		}
		total, limited := r.limitFrom(length, c.Index)
		_, still := r.limitFrom(length, c.Index+cells)
		if c.certain() > 0 && limited && still {
			take(c.Index, cells, sum, total)
		}
		sum -= c.certain()
	}
}

// level is how full the spans are that end with a cell: the one of them that comes
// nearest to what it may hold. For each permit issued it rises by as many units as
// cells make a window, and with each cell it falls by the total; to begin, it is
// as far below zero as what may be issued at once. Above zero by more than what
// accrues in the last slot, there were too many permits.
//
// That is a leaky bucket, which finds the worst of all spans in one pass.
type level struct {
	begun   bool
	first   int64 // the span's first cell
	height  int64
	issued  int64
	burst   int64
	accrued int64 // in units
}

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
		for ; at < c.Index; at++ {
			r.pass(&l, length, at, 0)
		}
		total, limited := r.pass(&l, length, at, c.certain())
		at++
		if !limited {
			continue
		}
		if then, ok := r.limitFrom(length, at); ok {
			total = max(total, then) // in the slot's course
		}
		take(l.first, at-l.first, l.issued, l.burst+(l.accrued+total*r.Shape.tail())/part)
	}
}

// remembered is for how many windows without a permit a level is kept: a bucket is
// full again after one.
const remembered = 2

// pass takes a cell with its permits into the level.
func (r *Run) pass(l *level, length time.Duration, cell, issued int64) (total int64, limited bool) {
	total, limited = r.limitFrom(length, cell)
	if !limited {
		*l = level{}
		return 0, false
	}
	part, burst := int64(length/r.Shape.Cell), r.Shape.atOnce(total)
	if !l.begun || l.height <= -burst*part {
		*l = level{begun: true, first: cell, height: -burst * part, burst: burst}
	}
	l.height += issued*part - total
	l.issued += issued
	l.accrued += total
	return total, true
}
