package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// shapesDoc holds a table with a row for each run.
const shapesDoc = "docs/shapes.md"

// shapes runs 96 instances under each shape, which burst all at once or call
// steadily, writes the rows of the table, and draws what the bursts come to.
func shapes(ctx context.Context, l *loadgen) error {
	c := chart.Chart{
		Title: "Permits in any second, wherever it begins: bursts of 96 instances under 30,000 a second",
		Says:  "How many permits came in the last second, at each moment, under each shape, as a multiple of the limit.",
		X:     chart.Axis{Label: "seconds since measuring began", Max: 30, Text: func(v float64) string { return fmt.Sprint(v) }},
		Y:     chart.Axis{Label: "of the limit", Max: 2.2},
	}
	for _, s := range []struct {
		name  string // of the row
		args  []string
		color chart.Color
	}{
		{"`fixed`", []string{"--shape", "fixed"}, chart.Grey},
		{"`sliding`", []string{"--shape", "sliding"}, chart.Blue},
		{"`bucket`, burst 3,000", []string{"--shape", "bucket", "--burst", "3000"}, chart.Orange},
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
				c.Series = append(c.Series, rolling(r, s.args[1], s.color))
			}
		}
	}
	return save("shapes", &c)
}

// rolling is a run's permits in any second, as a line.
func rolling(r *load.Report, name string, color chart.Color) chart.Series {
	s := chart.Series{Name: name, Color: color, Step: true}
	for _, m := range r.Rolling {
		at := time.Unix(0, m.At).Sub(r.Began).Seconds()
		s.Points = append(s.Points, chart.Point{X: at, Y: float64(m.Permits) / 30_000})
	}
	return s
}

// spanCells are the numbers of a row: the most that came to callers in any second,
// what was issued of what could have been, the verdict, the spans behind it, and
// how much of what it may hold the fullest of them held.
func spanCells(r *load.Report) []string {
	judged, fullest := "-", "-"
	if s := r.Summary.Spans; s != nil {
		judged, fullest = fmt.Sprint(s.Judged), fmt.Sprintf("%.4f", s.MaxOverRatio)
	}
	return []string{fmt.Sprintf("%.2f", r.Summary.MaxSpanRatio), fmt.Sprintf("%.1f%%", 100*r.Summary.UtilisationAll), string(r.Verdict), judged, fullest}
}
