package load

import (
	"testing"

	"pgregory.net/rapid"
)

// What came in any window's length, by when it came: spans that reach beyond the
// measured time do not count.
func TestSpanRatio(t *testing.T) {
	t.Parallel()
	r := steadyRun() // measured from 11 to 15
	r.Own = Own{Cell: 10 * ms, Came: []Count{{Index: 1099, Issued: 900}, {Index: 1190, Issued: 100}, {Index: 1201, Issued: 100}, {Index: 1289, Issued: 3}, {Index: 1290, Issued: 50}, {Index: 1500, Issued: 900}}}
	moments := r.Rolling()
	if got := r.spanRatio(); got != 2.03 {
		t.Errorf("%v, want 2.03: 100, 100 and 3 permits in 100 cells of 10 ms", got)
	}
	if len(moments) != 301 || moments[0] != (Moment{12 * second, 100}) || moments[300] != (Moment{15 * second, 0}) {
		t.Errorf("%d moments: %v", len(moments), moments)
	}
	r.Start, r.End = 11*second, 11*second+int64(990*ms)
	if got := r.spanRatio(); got != 0 {
		t.Errorf("%v where no window's length was measured", got)
	}
	r.Start = Never
	if got := r.spanRatio(); got != 0 {
		t.Errorf("%v before anything was measured", got)
	}
}

// A long run has as many moments as a picture needs, and the fullest span is in
// them.
func TestRollingAgainstEverySpan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := steadyRun()
		r.End = r.Start + rapid.Int64Range(1, 30).Draw(t, "seconds")*second
		var came []Count
		for range rapid.IntRange(0, 40).Draw(t, "cells") {
			came = Merge(came, []Count{{Index: rapid.Int64Range(1000, 1100+3100).Draw(t, "cell"), Issued: rapid.Int64Range(1, 9).Draw(t, "permits")}})
		}
		most := int64(0)
		for from := r.Start / int64(10*ms); (from+100)*int64(10*ms) <= r.End; from++ {
			sum := int64(0)
			for _, c := range came {
				if from <= c.Index && c.Index < from+100 {
					sum += c.Issued
				}
			}
			most = max(most, sum)
		}
		r.Own = Own{Cell: 10 * ms, Came: came}
		moments := r.Rolling()
		if got := r.spanRatio(); got != float64(most)/100 || len(moments) > mostMoments {
			t.Errorf("%v in %d moments, want %d permits of 100", got, len(moments), most)
		}
	})
}
