package config

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// Permits are counted by the windows, or slots, that they tell.
func TestCells(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]time.Duration{
		"":                                 time.Second,
		"--shape sliding":                  2 * time.Millisecond,
		"--shape bucket --limit 5/100ms":   200 * time.Microsecond,
		"--shape sliding --limit 5/5s":     10 * time.Millisecond,
		"--shape bucket --limit 5/1m":      120 * time.Millisecond,
		"--shape sliding --limit 5/s,9/7s": 2 * time.Millisecond,
	} {
		c, err := ParseFlags(strings.Fields(args+" --duration 1m"), noEnv, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Cell(); got != want {
			t.Errorf("%s: cells of %v, want %v", args, got, want)
		}
	}
}

func TestShapeOfTheReport(t *testing.T) {
	t.Parallel()
	c, err := ParseFlags(strings.Fields("--shape bucket --burst 5000 --warm-up 2s --instances 7"), noEnv, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ShapeText(); got != ", bucket with a burst of 5,000, warm-up 2s" {
		t.Error(got)
	}
	if r := c.Asked; r["shape"] != "bucket" || r["burst"] != 5000.0 || r["warm_up_seconds"] != 2.0 || r["max_wait_seconds"] != 0.1 || r["duration"] != nil || r["endpoints"] != nil {
		t.Errorf("%+v", r)
	}
	want := load.Shape{Kind: quota.ShapeBucket, Cell: 2 * time.Millisecond, Burst: 5000, Crowd: 10}
	if got := c.Spans(3); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	p := c.Policy(c.Limits, "")
	if p.Shape != quota.ShapeBucket || p.Burst != 5000 || p.WarmUp != 2*time.Second {
		t.Errorf("%+v", p)
	}
}
