package load

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/quota"
)

const second = int64(time.Second)

func perSecond(permits int64) []quota.Limit {
	return []quota.Limit{{Permits: permits, Window: time.Second}}
}

// steadyRun is a fleet of four, active from second 10, measured from 11 to 15,
// that issued 100 of 100 in each window.
func steadyRun() Run {
	r := Run{
		Timeline: Timeline{Changes: []Change{{Limits: perSecond(100)}}, Settle: 3 * time.Second, Slack: 50 * time.Millisecond},
		Fleet:    4, Servers: 4, Active: 10*second + 1, Start: 11 * second, End: 15 * second,
	}
	r.Presence.Record(7*second, 0, time.Second)
	r.Presence.Record(10*second+1, 4, time.Second)
	r.Serving = r.Presence
	for k := int64(10); k < 15; k++ {
		r.Counts = append(r.Counts, Count{Index: k, Offered: 150, Issued: 100})
	}
	return r
}

// judge is Judge for a fleet of which the generator's clock saw each permit as its
// window began, and that served all the time, unless the run says what else was seen.
func judge(r Run) ([]Window, Summary, Verdict) {
	if r.Servers == 0 {
		r.Servers = 1
		r.Serving.Record(0, 1, time.Second)
	}
	if r.Own.Cell == 0 {
		r.Own = Own{Cell: 10 * time.Millisecond, Tolerance: r.Timeline.Slack}
		unit := r.Timeline.Lengths()[0]
		if r.Shape != nil {
			unit = r.Shape.Cell
		}
		for _, c := range r.Counts {
			at := floorDiv(c.Index*int64(unit), int64(r.Own.Cell))
			r.Own.Came = Merge(r.Own.Came, []Count{{Index: at, Issued: c.Issued - c.Doubtful}})
		}
	}
	return Judge(r)
}

func TestAFleetThatHolds(t *testing.T) {
	windows, summary, verdict := judge(steadyRun())
	if verdict != Held {
		t.Errorf("verdict %q", verdict)
	}
	want := Summary{Windows: 4, MaxOverRatio: 1, IssuedTotal: 500, MaxSpanRatio: 1, PeakToMean10ms: 100, PeakToMean50ms: 20,
		OwnClock: OwnSummary{ToleranceNs: 50e6}}
	want.Used = Use{Due: 400, Came: 400, Ratio: 1, Worst: &WindowUse{time.Unix(11, 0).UTC(), 100, 100}}
	want.OneLimiter = want.Used
	if d := cmp.Diff(want, summary); d != "" {
		t.Error(d)
	}
	if len(windows) != 5 || windows[0].Instances != 4 || windows[0].Whole || !windows[1].Whole {
		t.Errorf("windows %+v", windows)
	}
}

// One permit too many is enough, wherever it is.
func TestOnePermitTooMany(t *testing.T) {
	for _, c := range []struct {
		name  string
		index int64
	}{
		{"in the measured time", 12},
		{"while the fleet settles", 10},
		{"before that, in a window of its own", 8},
		{"after the end", 15},
	} {
		r := steadyRun()
		r.Counts = Merge(r.Counts, []Count{{Index: c.index, Issued: 101}})
		for i := range r.Counts {
			if r.Counts[i].Index == c.index {
				r.Counts[i].Issued = 101
			}
		}
		_, summary, verdict := judge(r)
		if verdict != NotHeld || summary.OverLimitWindows != 1 || summary.MaxOverRatio != 1.01 {
			t.Errorf("%s: %q, %d windows, ratio %v", c.name, verdict, summary.OverLimitWindows, summary.MaxOverRatio)
		}
	}
}

// What a killed process may not have taken breaks no limit; what is beyond it
// does.
func TestDoubtfulPermits(t *testing.T) {
	for _, c := range []struct {
		more Count
		want Verdict
	}{
		{Count{Index: 12, Issued: 1, Doubtful: 1}, Held},
		{Count{Index: 12, Issued: 2, Doubtful: 1}, NotHeld},
	} {
		r := steadyRun()
		r.Counts = Merge(r.Counts, []Count{c.more})
		windows, summary, verdict := judge(r)
		if verdict != c.want || windows[2].Doubtful != 1 || summary.Used.Ratio != 1 {
			t.Errorf("%+v: %q, %+v, %+v", c.more, verdict, summary, windows[2])
		}
	}
}

// Requests are reported by the provider's windows, also where no permit was
// issued. What a guard does not cover is not judged.
func TestArrivals(t *testing.T) {
	r := steadyRun()
	r.Arrivals = &Arrivals{Unjudged: "no guard", Counts: map[time.Duration][]Count{
		time.Second: {{Index: 11, Issued: 99}, {Index: 12, Issued: 101}, {Index: 15, Issued: 3}}}}
	windows, summary, verdict := judge(r)
	want := ArrivalSummary{Unjudged: "no guard", OverLimitWindows: 1, MaxOverRatio: 1.01, MaxLateRatio: 1.01, Total: 203}
	if d := cmp.Diff(&want, summary.Arrivals); d != "" {
		t.Error(d)
	}
	if verdict != Held || len(windows) != 6 {
		t.Fatalf("%q, %d windows", verdict, len(windows))
	}
	for i, want := range []int64{0, 99, 101, 0, 0, 3} {
		if got := windows[i].Arrived; got == nil || *got != want {
			t.Errorf("window %d: %v arrived, want %d", i, got, want)
		}
	}
}

// With a guard, arrivals over the limit are a violation, but for those that were
// late.
func TestGuardedArrivalsAreJudged(t *testing.T) {
	for _, c := range []struct {
		arrived, late int64
		want          Verdict
	}{{100, 0, Held}, {100, 30, Held}, {100, 31, Unknown}, {101, 1, Held}, {130, 30, Held}, {101, 0, NotHeld}, {150, 49, NotHeld}} {
		r := steadyRun()
		r.Arrivals = &Arrivals{Promised: true, Counts: map[time.Duration][]Count{time.Second: {{Index: 11, Issued: c.arrived, Offered: c.late}}}}
		windows, summary, verdict := judge(r)
		if a := summary.Arrivals; verdict != c.want || !a.Judged || a.Total != c.arrived || a.Late != c.late || windows[1].Late != c.late ||
			windows[1].ArrivedOver() != (c.want == NotHeld) || summary.OverLimitWindows != 0 {
			t.Errorf("%+v: %q, %+v", c, verdict, a)
		}
	}
}

func TestNoWholeWindowShowsNothing(t *testing.T) {
	r := steadyRun()
	r.End = r.Start + second/2
	if _, summary, verdict := judge(r); verdict != Unknown || summary.Windows != 0 {
		t.Errorf("half a window: %q, %+v", verdict, summary)
	}
	r = steadyRun()
	r.Start, r.End = Never, Never
	if _, _, verdict := judge(r); verdict != Unknown {
		t.Errorf("never active: %q", verdict)
	}
	r.Counts[0].Issued = 200
	if _, _, verdict := judge(r); verdict != NotHeld {
		t.Errorf("never active, and over the limit: %q", verdict)
	}
}

func TestPermitsOfAZeroLimitAreTooMany(t *testing.T) {
	r := steadyRun()
	r.Timeline.Changes[0].Limits = perSecond(0)
	_, summary, verdict := judge(r)
	if verdict != NotHeld || summary.MaxOverRatio != 100 {
		t.Errorf("%q, ratio %v", verdict, summary.MaxOverRatio)
	}
	for i := range r.Counts {
		r.Counts[i].Issued = 0
	}
	_, summary, verdict = judge(r)
	if verdict != Unknown || summary.Used.Ratio != 0 || math.IsNaN(summary.MaxOverRatio) || summary.Unjudged[0] != "nothing was due in the whole windows" {
		t.Errorf("%q, %+v", verdict, summary)
	}
}

// A change binds windows that start one settle time after it; until then the
// larger total does.
func TestLimitsWhileAChangeSettles(t *testing.T) {
	timeline := Timeline{Settle: 3 * time.Second, Slack: 50 * time.Millisecond, Changes: []Change{
		{Limits: perSecond(300)},
		{Sent: 20*second + 1, Acked: 20*second + 5, Limits: perSecond(100)},
		{Sent: 40*second + 1, Acked: 40*second + 5, Limits: perSecond(600)},
	}}
	for _, c := range []struct {
		start    int64
		limit    int64
		settling bool
	}{
		{19, 300, false}, {20, 300, true}, {23, 300, true}, {24, 100, true}, {25, 100, false},
		{39, 100, false}, {40, 600, true}, {44, 600, true}, {45, 600, false},
	} {
		if limit, ok := timeline.LimitAt(time.Second, c.start*second); limit != c.limit || !ok {
			t.Errorf("window %d: limit %d, %v; want %d", c.start, limit, ok, c.limit)
		}
		if got := (&Run{Timeline: timeline}).settling(quota.WindowAt(time.Second, c.start*second)); got != c.settling {
			t.Errorf("window %d: settling %v", c.start, got)
		}
	}
}

// Lowered and raised again within a settle time, all three totals are around.
func TestChangesInQuickSuccession(t *testing.T) {
	timeline := Timeline{Settle: 3 * time.Second, Changes: []Change{
		{Limits: perSecond(300)},
		{Sent: 20 * second, Acked: 20*second + 5, Limits: perSecond(100)},
		{Sent: 21 * second, Acked: 21*second + 5, Limits: perSecond(200)},
	}}
	for start, want := range map[int64]int64{22: 300, 23: 300, 24: 200, 25: 200} {
		if got, _ := timeline.LimitAt(time.Second, start*second); got != want {
			t.Errorf("window %d: %d, want %d", start, got, want)
		}
	}
}

// A change without an answer may have been committed, or not, and at any time.
func TestAnUnansweredChangeMayBeInForce(t *testing.T) {
	for _, permits := range []int64{100, 500} {
		timeline := Timeline{Settle: 3 * time.Second, Changes: []Change{
			{Limits: perSecond(300)},
			{Sent: 20 * second, Acked: Never, Limits: perSecond(permits)},
		}}
		for start, want := range map[int64]int64{18: 300, 20: max(300, permits), 90: max(300, permits)} {
			if got, _ := timeline.LimitAt(time.Second, start*second); got != want {
				t.Errorf("to %d, window %d: %d, want %d", permits, start, got, want)
			}
		}
		if !(&Run{Timeline: timeline}).settling(quota.WindowAt(time.Second, 90*second)) {
			t.Errorf("to %d: settled", permits)
		}
	}
}

// A limit that is added binds once no policy without it is around, one that is
// removed until then.
func TestAddedAndRemovedLimits(t *testing.T) {
	both := append(perSecond(100), quota.Limit{Permits: 300, Window: 5 * time.Second})
	timeline := Timeline{Settle: 3 * time.Second, Changes: []Change{
		{Limits: perSecond(100)},
		{Sent: 20 * second, Acked: 20 * second, Limits: both},
		{Sent: 40 * second, Acked: 40 * second, Limits: perSecond(100)},
	}}
	for start, want := range map[int64]bool{15: false, 20: false, 25: true, 35: true, 40: false} {
		if _, ok := timeline.LimitAt(5*time.Second, start*second); ok != want {
			t.Errorf("window %d: %v", start, ok)
		}
	}
}

// 500/2s and 2000/10s: every window of both is judged, and nothing is due of the shorter
// one once the longer one is used up.
func TestSeveralLimits(t *testing.T) {
	r := Run{
		Timeline: Timeline{Settle: 3 * time.Second, Changes: []Change{{Limits: []quota.Limit{
			{Permits: 500, Window: 2 * time.Second}, {Permits: 2000, Window: 10 * time.Second}}}}},
		Fleet: 2, Servers: 2, Active: 100*second + 5, Start: 102 * second, End: 110 * second,
	}
	r.Presence.Record(90*second, 0, 2*time.Second)
	r.Presence.Record(100*second+5, 2, 2*time.Second)
	r.Serving = r.Presence
	for k, issued := range map[int64]int64{50: 500, 51: 500, 52: 500, 53: 500, 54: 0} {
		r.Counts = Merge(r.Counts, []Count{{Index: k, Offered: 750, Issued: issued}})
	}
	windows, summary, verdict := judge(r)
	if verdict != Held || summary.Windows != 4 || summary.Used.Due != 1500 || summary.Used.Ratio != 1 || summary.IssuedTotal != 2000 {
		t.Errorf("%q, %+v", verdict, summary)
	}
	if len(windows) != 6 || windows[0].Length != "2s" || windows[1].Length != "10s" || windows[1].Issued != 2000 {
		t.Errorf("windows %+v", windows)
	}
	r.Counts[4].Issued = 1 // within 500/2s, but the 2,001st of ten seconds
	if _, summary, verdict = judge(r); verdict != NotHeld || summary.OverLimitWindows != 1 {
		t.Errorf("%q, %+v", verdict, summary)
	}
}

func TestCountable(t *testing.T) {
	limit := func(w time.Duration) quota.Limit { return quota.Limit{Permits: 1, Window: w} }
	for _, c := range []struct {
		name  string
		lists [][]quota.Limit
		ok    bool
	}{
		{"one", [][]quota.Limit{{limit(time.Second)}}, true},
		{"multiples", [][]quota.Limit{{limit(10 * time.Second), limit(2 * time.Second)}}, true},
		{"no multiple", [][]quota.Limit{{limit(2 * time.Second), limit(5 * time.Second)}}, false},
		{"another shortest", [][]quota.Limit{{limit(time.Second)}, {limit(2 * time.Second)}}, false},
		{"one more, longer", [][]quota.Limit{{limit(time.Second)}, {limit(time.Second), limit(time.Minute)}}, true},
	} {
		if err := CheckCountable(c.lists...); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestPeakToMean(t *testing.T) {
	r := Run{Start: 1000, End: 1105, Own: Own{Cell: 10, Came: []Count{{Index: 99, Issued: 1000}, {Index: 100, Issued: 30}, {Index: 105, Issued: 10}, {Index: 110, Issued: 1000}}}}
	if got := r.peakToMean(1); got != 7.5 {
		t.Errorf("%v, want 30 over a mean of 4", got)
	}
	if got := r.peakToMean(4); got != 1.5 {
		t.Errorf("%v in cells of 40, want 30 over a mean of 20", got)
	}
	r.Own.Came = nil
	if got := r.peakToMean(1); got != 0 {
		t.Errorf("%v without permits", got)
	}
}

// The field names are what other programs read.
func TestReportJSON(t *testing.T) {
	r := Report{Schema: Schema, Config: struct{}{}, Verdict: Held}
	r.Windows, r.Summary, _ = judge(steadyRun())
	r.Windows = r.Windows[1:2]
	var b strings.Builder
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"schema": 1.0, "config": map[string]any{}, "verdict": "held", "least_use": 0.0, "window_ns": 0.0,
		"windows": []any{map[string]any{"start": "1970-01-01T00:00:11Z", "limit": 100.0, "offered": 150.0,
			"issued": 100.0, "arrived": nil, "instances": 4.0}},
		"summary": map[string]any{"windows": 4.0, "over_limit_windows": 0.0, "max_over_ratio": 1.0,
			"used":         map[string]any{"due": 400.0, "came": 400.0, "ratio": 1.0, "worst": map[string]any{"start": "1970-01-01T00:00:11Z", "due": 100.0, "came": 100.0}},
			"one_limiter":  map[string]any{"due": 400.0, "came": 400.0, "ratio": 1.0, "worst": map[string]any{"start": "1970-01-01T00:00:11Z", "due": 100.0, "came": 100.0}},
			"issued_total": 500.0, "settle_seconds": 0.0,
			"acquire_ns":        map[string]any{"p50": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0},
			"delay_ns":          map[string]any{"p50": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0},
			"max_span_ratio":    1.0,
			"own_clock":         map[string]any{"tolerance_ns": 50e6, "outside": 0.0, "unplaced": 0.0},
			"peak_to_mean_10ms": 100.0, "peak_to_mean_50ms": 20.0, "cpu_seconds": 0.0, "max_rss_bytes": 0.0},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
