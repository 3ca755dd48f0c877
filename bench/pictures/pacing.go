package main

import (
	"context"
	"fmt"
	"image/color"
	"os"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/quotient-limiter/quotient/internal/load"
)

// pacingDoc holds the table, a row for each run.
const pacingDoc = "docs/pacing.md"

// The fleet of TestPacingFlattens: 96 instances with a share of 500 a second each.
// The settle time has nothing to do with pacing, and is short to save time.
var fleet = []string{"--limit", "48000/s", "--settle", "1s", "--max-wait", "2s", "--measure-after", "5s", "--duration", "16s"}

// pacing runs the fleet under each pacing, and writes the rows of the table.
func pacing(name string, args ...string) func(context.Context, loadgen) error {
	return func(ctx context.Context, l loadgen) error {
		for _, pacing := range []string{"off", "even"} {
			r, err := l.run(ctx, slices.Concat([]string{"--pacing", pacing}, args, fleet)...)
			if err != nil {
				return err
			}
			if err := setRow(pacingDoc, name+": "+pacing, cells(r)); err != nil {
				return err
			}
		}
		return nil
	}
}

func cells(r *load.Report) []string {
	d := func(ns int64) string { return time.Duration(ns).Round(time.Millisecond).String() }
	return []string{
		fmt.Sprintf("%.2f", r.Summary.PeakToMean50ms), d(r.Summary.DelayNs.P50), d(r.Summary.DelayNs.P99),
	}
}

// setRow replaces the row of a document's table that begins with name.
func setRow(document, name string, cells []string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "| "+name+" |") })
	if at < 0 {
		return fmt.Errorf("%s has no row %q", document, name)
	}
	lines[at] = "| " + name + " | " + strings.Join(cells, " | ") + " |"
	fmt.Println(lines[at])
	return os.WriteFile(document, []byte(strings.Join(lines, "\n")), 0o600)
}

const shapesDoc = "docs/shapes.md"

// shapes runs 96 instances under each shape, which burst all at once or call steadily.
// It writes the rows of the table and draws the bursts.
func shapes(ctx context.Context, l loadgen) error {
	c := picture{file: "shapes", title: "Permits in any second, wherever it begins: bursts of 96 instances under 30,000 a second", top: 2.6,
		x: "seconds since measuring began", y: "of the limit"}
	for _, s := range []struct {
		name  string // of the row
		args  []string
		color color.Color
	}{
		{"`fixed`", []string{"--shape", "fixed"}, grey},
		{"`sliding`", []string{"--shape", "sliding"}, blue},
		{"`bucket`, burst 3,000", []string{"--shape", "bucket", "--burst", "3000"}, orange},
	} {
		for _, arrival := range []string{"burst", "steady"} {
			args := append([]string{"--limit", "30000/s", "--arrival", arrival, "--duration", "30s"}, s.args...)
			r, err := l.run(ctx, args...)
			if err != nil {
				return err
			}
			if err := setRow(shapesDoc, s.name+", "+arrival, spanCells(r)); err != nil {
				return err
			}
			if arrival == "burst" {
				c.lines = append(c.lines, rolling(r, s.args[1], s.color))
			}
		}
	}
	return c.save()
}

// rolling is a run's permits in any second, as a line.
func rolling(r *load.Report, name string, color color.Color) line {
	l := line{name: name, color: color}
	for _, m := range r.Rolling {
		l.points = append(l.points, plotter.XY{X: time.Unix(0, m.At).Sub(r.Began).Seconds(), Y: float64(m.Permits) / 30_000})
	}
	return l
}

// spanCells are the numbers of a row: the most permits in any second, the part issued
// of those available, the verdict, its spans, and the fullest span's part of its bound.
func spanCells(r *load.Report) []string {
	judged, fullest := "-", "-"
	if s := r.Summary.Spans; s != nil {
		judged, fullest = fmt.Sprint(s.Judged), fmt.Sprintf("%.4f", s.MaxOverRatio)
	}
	return []string{fmt.Sprintf("%.2f", r.Summary.MaxSpanRatio), fmt.Sprintf("%.1f%%", 100*r.Summary.Used.Ratio), string(r.Verdict), judged, fullest}
}
