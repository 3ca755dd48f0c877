package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/load"
)

// The whole command, over two processes, under each shape, with several limits and
// with a burst: the verdict is on spans, and the page and the report have them. How much of
// the limit is used depends on the processors that the machine has left, so it is not judged.
func TestShapesEndToEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, args string }{
		{"sliding with a guard", "--shape sliding --guard 20ms --limit 40/200ms,150/1s"},
		{"bucket", "--shape bucket --burst 12 --limit 40/200ms --arrival burst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			page, file := t.TempDir()+"/page.html", t.TempDir()+"/report.json"
			var stdout, stderr bytes.Buffer
			args := strings.Fields(c.args + " --instances 6 --processes 2 --settle 1s --duration 3s --least-use 0 --json " + file + " --html " + page)
			code := loadgen(context.Background(), args, noEnv, &stdout, &stderr)
			text, err := os.ReadFile(file)
			var report load.Report
			if err = errors.Join(err, json.Unmarshal(text, &report)); err != nil {
				t.Fatalf("%v in %s\n%s", err, text, stderr.String())
			}
			s := report.Summary
			if code != exitHeld || report.Verdict != load.Held || s.Spans == nil || s.Spans.Judged < 20 || s.Spans.Over != 0 || s.Spans.MaxOverRatio > 1 {
				t.Errorf("exit %d, %q, %+v\n%s", code, report.Verdict, s.Spans, stderr.String())
			}
			if s.IssuedTotal == 0 || s.MaxSpanRatio == 0 {
				t.Errorf("%+v", s)
			}
			if !strings.Contains(stdout.String(), "HELD: ") || !strings.Contains(stdout.String(), " spans; the fullest: ") {
				t.Errorf("no verdict in %s", stdout.String())
			}
		})
	}
}
