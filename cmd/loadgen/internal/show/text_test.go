package show

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/load"
)

func windowAt(second int, limit, issued int64) load.Window {
	return load.Window{
		Start: time.Date(2027, 1, 1, 0, 0, second, 0, time.UTC),
		Limit: limit, Offered: 450000, Issued: issued, Instances: 96,
	}
}

func TestTable(t *testing.T) {
	windows := []load.Window{windowAt(1, 300000, 300000), windowAt(2, 300000, 301000)}
	windows[0].Instances = 7
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: windows}, 96)
	want := `     start    limit  offered   issued  instances
  00:00:01  300,000  450,000  300,000          7  settling
  00:00:02  300,000  450,000  301,000         96  OVER by 1,000
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestTableWithAProvider(t *testing.T) {
	w, n := windowAt(1, 300000, 300000), int64(299990)
	w.Arrived = &n
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: []load.Window{w}}, 96)
	want := `     start    limit  offered   issued  arrived  instances
  00:00:01  300,000  450,000  300,000  299,990         96  not measured
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestTableOfSeveralLimitsNamesTheWindow(t *testing.T) {
	w := windowAt(1, 300000, 300000)
	w.Length = "10s"
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: []load.Window{w}}, 96)
	if !strings.Contains(b.String(), "window") || !strings.Contains(b.String(), "10s") {
		t.Error(b.String())
	}
}

// The table says in which window a fault was played, and the limit changed, in windows of each length.
func TestTheTableShowsWhatBefellTheFleet(t *testing.T) {
	windows := []load.Window{windowAt(1, 300000, 300000), windowAt(2, 300000, 300000), windowAt(3, 300000, 299000), windowAt(0, 3000000, 899000)}
	windows[2].Doubtful = 1000
	windows[3].Length = "10s"
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: windows, WindowNs: int64(time.Second), Events: []load.Event{
		{At: windows[1].Start, Text: "kill-leader"},
		{At: windows[1].Start.Add(time.Second - 1), Text: "limit 200000/s"},
		{At: windows[2].Start, Text: "3 instances crash"},
	}}, 96)
	want := `     start      limit  offered   issued  instances
  00:00:01    300,000  450,000  300,000         96  not measured
  00:00:02    300,000  450,000  300,000         96  kill-leader; limit 200000/s; not measured
  00:00:03    300,000  450,000  299,000         96  3 instances crash; 1,000 of them doubtful
  00:00:00  3,000,000  450,000  899,000         96  kill-leader; limit 200000/s; 3 instances crash; not measured
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

// A long table is cut, but what went wrong stays in it, and what befell the fleet.
func TestALongTableKeepsWhatIsOver(t *testing.T) {
	var windows []load.Window
	for i := range 1000 {
		windows = append(windows, windowAt(i, 10, 10))
	}
	windows[500].Issued = 11
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: windows, WindowNs: int64(time.Second), Events: []load.Event{{At: windows[700].Start, Text: "kill-leader"}}}, 96)
	if lines := strings.Count(b.String(), "\n"); lines != tableRows+6 {
		t.Errorf("%d lines", lines)
	}
	for _, want := range []string{"OVER by 1", "470 more", "199 more", "269 more", "kill-leader"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// A line as a phase begins, then every few seconds.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := &Progress{W: &b}
		for i := range 80 {
			p.Tell([]string{"first", "second"}[i/40], "at %.1f s", 0.1*float64(i))
			time.Sleep(100 * time.Millisecond)
		}
		if want := "at 0.0 s\nat 3.0 s\nat 4.0 s\nat 7.0 s\n"; b.String() != want {
			t.Errorf("got\n%swant\n%s", b.String(), want)
		}
		new(Progress).Tell("silent", "")
	})
}

// The verdict is these words, for each of them.
func TestVerdictText(t *testing.T) {
	used := func(came int64, ratio, worst float64) load.Use {
		return load.Use{Due: 400000, Came: came, Ratio: ratio, Worst: &load.WindowUse{Due: 1000, Came: int64(1000 * worst)}}
	}
	late := load.OwnSummary{Unplaced: 5000, Excess: 1200}
	some := used(360000, 0.9, 0.5)
	some.Excused = 20000
	for _, c := range []struct {
		report load.Report
		want   string
	}{
		{load.Report{Verdict: load.Held, Summary: load.Summary{IssuedTotal: 600000, Windows: 10, Used: used(400000, 1, 1)}},
			"HELD: 600,000 permits issued in 12 windows, 10 of them whole; none over its limit\n" +
				"USED: 100.00% of the 400,000 permits that were due; in the worst window 100.00%\n"},
		{load.Report{Verdict: load.Held, Summary: load.Summary{IssuedTotal: 600000, Windows: 10, OwnClock: late, Used: some}},
			"HELD: 600,000 permits issued in 12 windows, 10 of them whole; none over its limit; " +
				"5,000 permits were held up, so that only their windows tell when they were issued; issued as they came, a window has up to 1,200 more than it may\n" +
				"USED: 90.00% of the 400,000 permits that were due; in the worst window 50.00%; 20,000 were not due, because not all instances served\n"},
		{load.Report{Verdict: load.NotHeld, Summary: load.Summary{OverLimitWindows: 1, MaxOverRatio: 1.5, Used: used(399999, 0.9999975, 0.999)}},
			"NOT HELD: 1 of 12 windows over the limit, the worst by a factor of 1.5000\n" +
				"USED: 99.99% of the 400,000 permits that were due; in the worst window 99.90%\n"},
		{load.Report{Verdict: load.Unused, Summary: load.Summary{Windows: 10, Used: used(0, 0, 0)}},
			"UNUSED: no permit was issued in 10 whole windows, though 400,000 were due: that no limit was exceeded says nothing\n"},
		{load.Report{Verdict: load.Underused, LeastUse: 0.9, Summary: load.Summary{IssuedTotal: 60000, Windows: 10, Used: used(40000, 0.1, 0.0975)}},
			"UNDERUSED: 60,000 permits issued in 12 windows, 10 of them whole; none over its limit\n" +
				"USED: 10.00% of the 400,000 permits that were due, less than the 90% of --least-use; in the worst window 9.70%\n"},
		{load.Report{Verdict: load.Unknown, Summary: load.Summary{IssuedTotal: 7, Unjudged: []string{"no whole window was seen"}}},
			"UNKNOWN: no whole window was seen (7 permits issued)\n"},
	} {
		var b bytes.Buffer
		c.report.Windows = make([]load.Window, 12)
		Verdict(&b, &c.report)
		if d := cmp.Diff(c.want, b.String()); d != "" {
			t.Errorf("%s: %s", c.report.Verdict, d)
		}
	}
}

// A verdict by arrivals says so, in the line and in the table.
func TestTooManyArrivalsAreNotHeld(t *testing.T) {
	w, n := windowAt(1, 100, 100), int64(130)
	w.Arrived, w.Late = &n, 20
	s := load.Summary{Arrivals: &load.ArrivalSummary{Judged: true, OverLimitWindows: 1, MaxOverRatio: 1.1, MaxLateRatio: 1.3, Total: 130, Late: 20}}
	var b bytes.Buffer
	Table(&b, &load.Report{Windows: []load.Window{w}}, 96)
	Summary(&b, &s)
	Verdict(&b, &load.Report{Verdict: load.NotHeld, Windows: []load.Window{w}, Summary: s})
	for _, want := range []string{"10 too many arrived", "130 requests arrived, 20 of them late; the others by the provider's clock: 1.1000 of the limit at most, with the late ones 1.3000",
		"NOT HELD: more requests arrived than the limit in 1 of the provider's windows, the worst by a factor of 1.1000"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestOneLimiter(t *testing.T) {
	var b bytes.Buffer
	Summary(&b, &load.Summary{OneLimiter: load.Use{Due: 1000, Came: 983, Ratio: 0.983, Worst: &load.WindowUse{Due: 100, Came: 90}}})
	if want := "98.30% of what one limiter would have issued; in the worst window 90.00%\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	b.Reset()
	if Summary(&b, &load.Summary{}); strings.Contains(b.String(), "one limiter") {
		t.Errorf("without calls it says\n%s", b.String())
	}
}

func TestVerdictOnSpans(t *testing.T) {
	worst := &load.Span{Start: time.Date(2027, 1, 1, 12, 0, 0, 2e6, time.UTC), LengthNs: 1e9, Issued: 1001, Allowed: 1000}
	for _, c := range []struct {
		verdict load.Verdict
		spans   load.SpanSummary
		want    string
	}{
		{load.NotHeld, load.SpanSummary{Judged: 5000, Over: 3, Worst: worst},
			"NOT HELD: 3 of 5,000 spans over their bound, the worst: 1,001 permits in 1s from 12:00:00.002 on, 1,000 allowed\n"},
		{load.Held, load.SpanSummary{Judged: 5000, Worst: &load.Span{Window: "1m0s", LengthNs: 4e6, Allowed: 7}},
			"HELD: 9 permits issued in 2 windows, 1 of them whole; none over its bound, nor any of 5,000 spans; the fullest: 0 permits in 4ms from 00:00:00.000 on, 7 allowed, of the limit per 1m0s\n"},
	} {
		var b bytes.Buffer
		Verdict(&b, &load.Report{Verdict: c.verdict, Windows: make([]load.Window, 2), Summary: load.Summary{IssuedTotal: 9, Windows: 1, Spans: &c.spans}})
		if b.String() != c.want {
			t.Errorf("got  %swant %s", b.String(), c.want)
		}
	}
}
