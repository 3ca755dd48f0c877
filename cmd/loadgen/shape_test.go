package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// The slots of another shape are told apart from the picture's buckets.
func TestCells(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]time.Duration{
		"":                                 time.Second,
		"--shape sliding":                  2 * time.Millisecond,
		"--shape bucket --limit 5/100ms":   200 * time.Microsecond,
		"--shape sliding --limit 5/5s":     5 * time.Millisecond,
		"--shape bucket --limit 5/1m":      120 * time.Millisecond,
		"--shape sliding --limit 5/s,9/7s": 2 * time.Millisecond,
	} {
		c, err := parseFlags(strings.Fields(args+" --duration 1m"), noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.cell(); got != want || c.shaped() && got == bucket {
			t.Errorf("%s: cells of %v, want %v", args, got, want)
		}
	}
}

func TestShapeOfTheReport(t *testing.T) {
	t.Parallel()
	c, err := parseFlags(strings.Fields("--shape bucket --burst 5000 --warm-up 2s --instances 7 --share weighted"), noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.shapeText(); got != ", bucket with a burst of 5,000, warm-up 2s" {
		t.Error(got)
	}
	if r := c.report("p"); r.Shape != "bucket" || r.Burst != 5000 || r.WarmUp != "2s" {
		t.Errorf("%+v", r)
	}
	want := load.Shape{Kind: quota.ShapeBucket, Cell: 2 * time.Millisecond, Slot: 2 * time.Millisecond, Burst: 5000, Crowd: 10}
	if got := c.spans(3); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	p := c.policy(c.limits, "")
	if p.Shape != quota.ShapeBucket || p.Burst != 5000 || p.WarmUp != 2*time.Second {
		t.Errorf("%+v", p)
	}
}

// The whole command, over two processes, under each shape, with several limits and
// with a burst: the verdict is on spans, and the page and the report have them.
func TestShapesEndToEnd(t *testing.T) {
	for _, c := range []struct{ name, args string }{
		{"sliding", "--shape sliding --limit 40/200ms,150/1s"},
		{"bucket", "--shape bucket --burst 12 --limit 40/200ms --arrival burst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := t.TempDir() + "/page.html"
			var stdout, stderr bytes.Buffer
			args := strings.Fields(c.args + " --instances 6 --processes 2 --settle 1s --duration 3s --json - --html " + page)
			code := loadgen(context.Background(), args, noEnv, &stdout, &stderr)
			var report load.Report
			if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
				t.Fatalf("%v in %s\n%s", err, stdout.String(), stderr.String())
			}
			s := report.Summary
			if code != exitHeld || report.Verdict != load.Held || s.Spans == nil || s.Spans.Judged < 20 || s.Spans.Over != 0 || s.Spans.MaxOverRatio > 1 {
				t.Errorf("exit %d, %q, %+v\n%s", code, report.Verdict, s.Spans, stderr.String())
			}
			if s.IssuedTotal == 0 || s.MaxSpanRatio == 0 {
				t.Errorf("%+v", s)
			}
			if !strings.Contains(stderr.String(), "HELD: ") || !strings.Contains(stderr.String(), " spans; the fullest: ") {
				t.Errorf("no verdict in %s", stderr.String())
			}
		})
	}
}

// Three limiters that each believe they are alone keep their shape, and the fleet
// does not: the spans tell.
func TestAFleetThatDoesNotShareAShapeIsCaught(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeSliding, quota.ShapeBucket} {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 50, Window: quota.MinWindow}}, Shape: shape}
		cell := quota.SlotOf(quota.MinWindow)
		s := &shared{window: int64(quota.MinWindow), cell: int64(cell), maxWait: 20 * time.Millisecond, paced: true,
			room: memory, use: func(int64, load.Request) {}, demand: load.Demand{Ratio: 1.5, Instances: 3}}
		s.limits.Store(&policy.Limits)
		g := newGenerator(s)
		for i := range 3 {
			l, err := consumer.Open(context.Background(), consumer.Fixed(policy), "p", consumer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			g.add(l, load.NewProcess(load.Steady, 1, i, 3), 1.0/3, new(atomic.Bool))
		}
		start := quota.WindowAt(quota.MinWindow, time.Now().UnixNano()).End()
		end := start + 8*s.window
		s.stop.Store(end)
		g.run()
		answered(t, g)
		judged := load.Run{
			Counts: g.tally.Counts(), Fleet: 3, Active: start, Start: start, End: end,
			Shape:    &load.Shape{Kind: shape, Cell: cell, Slot: cell, Crowd: 3, Equal: true},
			Timeline: load.Timeline{Settle: quota.DefaultSettle, Changes: []load.Change{{Limits: policy.Limits}}},
		}
		_, summary, verdict := load.Judge(judged)
		if verdict != load.NotHeld || summary.Spans.Over == 0 || summary.Spans.MaxOverRatio <= 1 {
			t.Errorf("%s: %q, %+v, %+v", shape, verdict, summary.Spans, summary.Spans.Worst)
		}
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
			"NOT HELD: 3 of 5,000 spans over what they may hold, the worst: 1,001 permits in 1s from 12:00:00.002 on, 1,000 allowed\n"},
		{load.Held, load.SpanSummary{Judged: 5000, Worst: &load.Span{Window: "1m0s", LengthNs: 4e6, Allowed: 7}},
			"HELD: 9 permits issued in 2 windows, 1 of them whole; none over what it may hold, nor any of 5,000 spans; the fullest: 0 permits in 4ms from 00:00:00.000 on, 7 allowed, of the limit per 1m0s\n"},
	} {
		var b bytes.Buffer
		writeVerdict(&b, c.verdict, make([]load.Window, 2), &load.Summary{IssuedTotal: 9, Windows: 1, Spans: &c.spans})
		if b.String() != c.want {
			t.Errorf("got  %swant %s", b.String(), c.want)
		}
	}
}
