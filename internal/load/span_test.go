package load

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

const ms = time.Millisecond

// shapedRun is a fleet of four that shares permits a second, counted in cells of
// 2 ms from second 10 on, of one shape.
func shapedRun(kind quota.Shape, permits int64, counts ...Count) Run {
	r := steadyRun()
	r.Start = 10 * second
	r.Timeline.Changes[0].Limits = perSecond(permits)
	r.Shape = &Shape{Kind: kind, Cell: 2 * ms, Crowd: 4}
	r.Counts = counts
	for i := range r.Counts {
		r.Counts[i].Index += 5000
	}
	return r
}

// issued is n permits in a cell, counted from second 10.
func issued(cell, n int64) Count { return Count{Index: cell, Issued: n} }

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		kind   quota.Shape
		limit  int64
		burst  int64
		counts []Count
		want   Verdict
	}{
		{"one window's permits at two of its ends", quota.ShapeSliding, 100, 0, []Count{issued(0, 60), issued(499, 40)}, Held},
		{"one more", quota.ShapeSliding, 100, 0, []Count{issued(0, 60), issued(499, 41)}, NotHeld},
		{"one more, a window later", quota.ShapeSliding, 100, 0, []Count{issued(0, 60), issued(499, 40), issued(500, 60), issued(999, 40)}, Held},
		{"one more, in between", quota.ShapeSliding, 100, 0, []Count{issued(0, 60), issued(499, 40), issued(500, 60), issued(998, 1), issued(999, 40)}, NotHeld},
		{"both sides of a boundary, which no aligned window sees", quota.ShapeSliding, 100, 0, []Count{issued(490, 100), issued(510, 1)}, NotHeld},
		{"nothing may be issued", quota.ShapeSliding, 0, 0, []Count{issued(490, 1)}, NotHeld},
		{"one that may not exist", quota.ShapeSliding, 100, 0, []Count{issued(0, 100), {Index: 1, Issued: 1, Doubtful: 1}}, Held},

		{"a burst of all, and what accrues", quota.ShapeBucket, 500, 0, []Count{issued(0, 502), issued(1, 1), issued(500, 499)}, Held},
		{"one more than accrues at once", quota.ShapeBucket, 500, 0, []Count{issued(0, 503)}, NotHeld},
		{"one more than accrues in a while", quota.ShapeBucket, 500, 0, []Count{issued(0, 502), issued(500, 501)}, NotHeld},
		{"a burst", quota.ShapeBucket, 500, 20, []Count{issued(0, 22), issued(1, 1), issued(2, 1)}, Held},
		{"one more than a burst", quota.ShapeBucket, 500, 20, []Count{issued(0, 22), issued(2, 3)}, NotHeld},
		{"bursts with a pause between", quota.ShapeBucket, 500, 20, []Count{issued(0, 22), issued(22, 22), issued(3000, 22)}, Held},
		{"bursts with a pause too short", quota.ShapeBucket, 500, 20, []Count{issued(0, 22), issued(21, 22)}, NotHeld},
		{"a burst for each instance", quota.ShapeBucket, 500, 1, []Count{issued(0, 6)}, Held},
		{"and one more", quota.ShapeBucket, 500, 1, []Count{issued(0, 7)}, NotHeld},
	} {
		r := shapedRun(c.kind, c.limit, c.counts...)
		r.Shape.Burst = c.burst
		_, summary, verdict := judge(r)
		if verdict != c.want || (summary.Spans.Over > 0) != (c.want == NotHeld) {
			t.Errorf("%s: %q, %+v, fullest %+v", c.name, verdict, summary.Spans, summary.Spans.Worst)
		}
	}
}

// Under a guard of ten cells, permits of the ten after a window are of the same span.
func TestASlidingSpanHasTheGuard(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transit time.Duration
		cell    int64
		want    Verdict
	}{{0, 499, NotHeld}, {0, 500, Held}, {20 * ms, 509, NotHeld}, {20 * ms, 510, Held}} {
		r := shapedRun(quota.ShapeSliding, 100, issued(0, 60), issued(c.cell, 41))
		r.Shape.Transit = c.transit
		if _, s, verdict := judge(r); verdict != c.want {
			t.Errorf("a guard of %v, cell %d: %q, %+v", c.transit, c.cell, verdict, s.Spans.Worst)
		}
	}
}

// The report names the span that is the fullest.
func TestTheFullestSpan(t *testing.T) {
	t.Parallel()
	r := shapedRun(quota.ShapeSliding, 100, issued(0, 60), issued(400, 39), issued(2000, 5))
	_, s, _ := judge(r)
	want := Span{Start: time.Unix(10, 0).UTC(), LengthNs: second, Issued: 99, Allowed: 100}
	if *s.Spans.Worst != want || s.Spans.Judged != 3 || s.Spans.MaxOverRatio != 0.99 || s.Spans.CellNs != int64(2*ms) {
		t.Errorf("%+v, %+v", s.Spans, s.Spans.Worst)
	}
	r = shapedRun(quota.ShapeBucket, 500, issued(0, 1), issued(400, 100), issued(401, 30))
	r.Shape.Burst = 200
	_, s, _ = judge(r)
	want = Span{Start: time.Unix(10, int64(800*ms)).UTC(), LengthNs: int64(4 * ms), Issued: 130, Allowed: 203}
	if *s.Spans.Worst != want || s.Spans.Judged != 3 {
		t.Errorf("%+v, %+v", s.Spans, s.Spans.Worst)
	}
}

// A lowered limit binds spans that begin a settle time later, and a window's
// length after that; a raised one may be used at once, as far as is known here.
func TestSpansOfAChange(t *testing.T) {
	t.Parallel()
	run := func(counts ...Count) Run {
		r := shapedRun(quota.ShapeSliding, 100, counts...)
		r.Timeline.Changes = append(r.Timeline.Changes, Change{Sent: 11 * second, Acked: 11*second + int64(ms), Limits: perSecond(50)})
		return r
	}
	for _, c := range []struct {
		at   int64 // cells from second 10 on
		want Verdict
	}{
		{0, Held}, {500, Held}, {2000, Held},
		{2550, NotHeld}, // from 15.1 s on: the window before began at 15 s, a settle time after 11 s
	} {
		if _, s, verdict := judge(run(issued(c.at, 51))); verdict != c.want {
			t.Errorf("51 permits at cell %d: %q, %+v", c.at, verdict, s.Spans.Worst)
		}
	}
	if _, _, verdict := judge(run(issued(0, 101))); verdict != NotHeld {
		t.Error("more than any limit")
	}
}

// Several limits are judged each by itself, and the worst of them is named.
func TestSpansOfSeveralLimits(t *testing.T) {
	t.Parallel()
	var counts []Count
	for s := range int64(6) {
		counts = append(counts, issued(s*500+250, 100))
	}
	r := shapedRun(quota.ShapeSliding, 100, counts...)
	r.Timeline.Changes[0].Limits = append(perSecond(100), quota.Limit{Permits: 500, Window: 5 * time.Second})
	_, s, verdict := judge(r)
	if verdict != Held || s.Spans.Judged != 12 || s.Spans.Worst.Window != "1s" {
		t.Fatalf("%q, %+v, %+v", verdict, s.Spans, s.Spans.Worst)
	}
	r.Counts = Merge(r.Counts, []Count{{Index: 6251, Issued: 1}})
	if _, s, verdict = judge(r); verdict != NotHeld || s.Spans.Over == 0 {
		t.Errorf("%q, %+v", verdict, s.Spans)
	}
}

// An aligned window may hold a burst and what accrues; without a burst on top of
// it the limit is all.
func TestWindowsOfABucket(t *testing.T) {
	t.Parallel()
	r := shapedRun(quota.ShapeBucket, 100, issued(500, 40), issued(999, 100))
	r.Shape.Burst = 40
	windows, s, verdict := judge(r)
	// The spans alone catch it: in a second and a slot there may be 40 and 100.
	if verdict != NotHeld || s.OverLimitWindows != 0 || windows[0].Allowed != 140 || windows[0].Limit != 100 {
		t.Errorf("%q, %+v, %+v", verdict, s, windows[0])
	}
}

// naive looks at every span of cells there is, and says how many permits the worst
// of them has too many. Fractions are exact.
func naive(r Run, length time.Duration) *big.Rat {
	worst := big.NewRat(-1<<60, 1)
	at := map[int64]int64{}
	for _, c := range r.Counts {
		at[c.Index] += c.Issued - c.Doubtful
	}
	first, last := r.Counts[0].Index, r.Counts[len(r.Counts)-1].Index
	total := r.Timeline.Changes[0].Limits[0].Permits
	for i := first; i <= last; i++ {
		sum := int64(0)
		for j := i; j <= last; j++ {
			sum += at[j]
			span := (j - i + 1) * int64(r.Shape.Cell)
			most := new(big.Rat)
			switch {
			case r.Shape.Kind == quota.ShapeBucket:
				most.SetInt64(r.Shape.atOnce(total))
				most.Add(most, big.NewRat(total*(span+int64(r.Shape.Cell)), int64(length)))
			case span > int64(length):
				continue
			default:
				most.SetInt64(total)
			}
			if over := new(big.Rat).Sub(big.NewRat(sum, 1), most); over.Cmp(worst) > 0 {
				worst = over
			}
		}
	}
	return worst
}

// The judge finds a span that is over wherever one is, and none elsewhere.
func TestSpansAgainstEveryPair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]quota.Shape{quota.ShapeSliding, quota.ShapeBucket}).Draw(t, "shape")
		limit := rapid.Int64Range(0, 40).Draw(t, "limit")
		cells := rapid.SliceOfNDistinct(rapid.Int64Range(0, 90), 1, 30, rapid.ID).Draw(t, "cells")
		var counts []Count
		for _, cell := range cells {
			counts = append(counts, issued(cell, rapid.Int64Range(0, 12).Draw(t, "permits")))
		}
		r := shapedRun(kind, limit, Merge(counts)...)
		r.Timeline.Changes[0].Limits[0].Window = 200 * ms
		r.Shape.Cell = 10 * ms // 20 of them are a window
		r.Shape.Burst = rapid.Int64Range(0, 50).Draw(t, "burst")
		_, s, verdict := judge(r)
		worst, any := naive(r, 200*ms), int64(0)
		for _, c := range counts {
			any += c.Issued
		}
		if got, want := s.Spans.Over > 0, any > 0 && worst.Sign() > 0; got != want {
			t.Fatalf("%q, %+v, %+v; the worst of all is over by %v", verdict, s.Spans, s.Spans.Worst, worst)
		}
		if kind == quota.ShapeSliding && any > 0 {
			if over := s.Spans.Worst.Issued - s.Spans.Worst.Allowed; worst.Cmp(big.NewRat(over, 1)) != 0 {
				t.Errorf("over by %d, want %v", over, worst)
			}
		}
	})
}

// One permit more than a fleet may issue that uses up everything, at any place, is
// found; and nothing before it.
func TestOnePermitTooManyInSpans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]quota.Shape{quota.ShapeSliding, quota.ShapeBucket}).Draw(t, "shape")
		part := rapid.SampledFrom([]int64{20, 50}).Draw(t, "cells in a window")
		limit := rapid.Int64Range(1, 200).Draw(t, "limit")
		r := shapedRun(kind, limit)
		r.Timeline.Changes[0].Limits[0].Window = time.Duration(part) * 10 * ms
		r.Shape.Cell = 10 * ms
		r.Shape.Burst = rapid.Int64Range(1, 300).Draw(t, "burst")
		// All that may be issued, as early as it may: the shapes' own rules, in one hand.
		level, used := int64(0), int64(0)
		ring := make([]int64, part)
		for cell := range 5 * part {
			var n int64
			if kind == quota.ShapeSliding {
				used -= ring[cell%part]
				n = rapid.Int64Range(0, limit-used).Draw(t, "n")
				if cell == 2*part {
					n = limit - used
				}
				used, ring[cell%part] = used+n, n
			} else {
				burst := r.Shape.atOnce(limit) * part
				level = max(level, 0) - limit
				n = max(0, (burst+limit-level)/part)
				level += n * part
			}
			if n > 0 {
				r.Counts = append(r.Counts, Count{Index: 5000 + cell, Issued: n})
			}
		}
		if _, s, verdict := judge(r); verdict == NotHeld {
			t.Fatalf("%q before anything is wrong: %+v", verdict, s.Spans.Worst)
		}
		var one int64
		if kind == quota.ShapeSliding {
			one = 5000 + rapid.Int64Range(part+1, 2*part).Draw(t, "planted") // a window that is full
		} else {
			one = rapid.SampledFrom(r.Counts).Draw(t, "planted").Index
		}
		r.Counts = Merge(r.Counts, []Count{{Index: one, Issued: 1}})
		if _, s, verdict := judge(r); verdict != NotHeld {
			t.Fatalf("%q with one too many in cell %d: %+v", verdict, one, s.Spans.Worst)
		}
	})
}

// What a fleet may issue at one instant.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		total, burst int64
		want         int64
	}{
		{"all of the total", 100, 0, 100},
		{"more than the total", 100, 101, 100},
		{"as much as the instances", 100, 8, 8},
		{"less than the instances: one each", 100, 2, 4},
		{"less than the instances, and than they may issue", 3, 2, 3},
	} {
		s := Shape{Burst: c.burst, Crowd: 4}
		if got := s.atOnce(c.total); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
