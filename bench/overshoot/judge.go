package main

import (
	"fmt"
	"slices"
	"time"
)

// grace is how long after the order to lower a limit the old one still counts.
const grace = time.Second

// plan is what was to happen, and when.
type plan struct {
	limit                       int64 // calls a second
	begin, killed, lowered, end time.Time
	lowers                      bool // the limit is halved at lowered
}

// limitAt returns the limit that counts for a second that begins at an instant: the larger one, if
// there are two.
func (p *plan) limitAt(at int64) float64 {
	if p.lowers && at >= p.lowered.Add(grace).UnixNano() {
		return float64(p.limit) / 2
	}
	return float64(p.limit)
}

// verdict is what the judge says. All but seconds and over are percent of the limit.
type verdict struct {
	used      float64 // before the kill, in whole seconds of the clock
	usedAfter float64 // after the kill, and before the limit is lowered
	most      float64 // in a second of the clock
	mostAny   float64 // in any second
	seconds   int     // of the clock
	over      int     // of these, those that had more calls than the limit
	calls     int
}

// judge counts the calls, which are nanoseconds since 1970: in each second of the clock, and in the
// second that begins at each call.
func judge(calls []int64, p plan) (v verdict) {
	slices.Sort(calls)
	in := map[int64]int64{}
	first := 0
	for i, at := range calls {
		in[at-at%int64(time.Second)]++
		for calls[first] <= at-int64(time.Second) {
			first++
		}
		v.mostAny = max(v.mostAny, 100*float64(i-first+1)/p.limitAt(calls[first]))
	}
	for at, n := range in {
		limit := p.limitAt(at)
		v.most = max(v.most, 100*float64(n)/limit)
		if v.seconds++; float64(n) > limit {
			v.over++
		}
	}
	used := func(from, to time.Time) float64 {
		sum, whole := int64(0), int64(0)
		for at := from.Truncate(time.Second).Add(time.Second); !at.Add(time.Second).After(to); at = at.Add(time.Second) {
			sum += in[at.UnixNano()]
			whole++
		}
		return 100 * float64(sum) / float64(max(1, whole*p.limit))
	}
	v.used, v.usedAfter, v.calls = used(p.begin, p.killed), used(p.killed, p.lowered), len(calls)
	return v
}

// String is the verdict as the metrics of a benchmark.
func (v verdict) String() string {
	return fmt.Sprintf("%.1f used-%% %.1f used-after-kill-%% %.1f most-%% %.1f most-any-%% %d over %d seconds %d calls",
		v.used, v.usedAfter, v.most, v.mostAny, v.over, v.seconds, v.calls)
}
