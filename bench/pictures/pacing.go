package main

import (
	"context"
	"fmt"
	"image/color"
	"os"
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

// traffic is how calls come.
type traffic struct {
	name    string // in the table
	args    []string
	picture string // empty: none is drawn
}

// measure runs the fleet under each pacing, writes the rows of the table, and draws
// a window.
func (t traffic) measure(ctx context.Context, l *loadgen) error {
	c := picture{file: t.picture, title: "Arrivals within a window: " + t.name, top: 4,
		x: "milliseconds into the window", y: "calls in 10 ms, as a multiple of their mean"}
	for _, p := range []struct {
		pacing string
		color  color.Color
	}{{"off", grey}, {"even", orange}} {
		r, err := l.run(ctx, append(append([]string{"--pacing", p.pacing}, t.args...), fleet...)...)
		if err != nil {
			return err
		}
		if err := setRow(pacingDoc, t.name+": "+p.pacing, cells(r)); err != nil {
			return err
		}
		points, peak := lastWindow(r.Within)
		name := p.pacing
		if peak > c.top {
			name += fmt.Sprintf(" (peak: %.0f)", peak)
		}
		c.lines = append(c.lines, line{name: name, color: p.color, points: points})
	}
	if t.picture == "" {
		return nil
	}
	return c.save()
}

// lastWindow is the last window, as multiples of its mean.
func lastWindow(w *load.Within) (points plotter.XYs, peak float64) {
	var sum int64
	for _, n := range w.Last {
		sum += n
	}
	mean := float64(sum) / float64(len(w.Last))
	for i, n := range w.Last {
		y := float64(n) / max(mean, 1)
		peak = max(peak, y)
		points = append(points, plotter.XY{X: float64(i) * float64(w.BucketNs) / 1e6, Y: y})
	}
	return points, peak
}

// cells are the numbers of a row.
func cells(r *load.Report) []string {
	d := func(ns int64) string { return time.Duration(ns).Round(time.Millisecond).String() }
	return []string{
		fmt.Sprintf("%.2f", r.Summary.PeakToMean50ms), fmt.Sprintf("%.2f", r.Summary.PeakToMean10ms),
		d(r.Summary.DelayNs.P50), d(r.Summary.DelayNs.P99), fmt.Sprintf("%.4f", used(r)),
	}
}

// used is what was issued of the limit, from the first window that was measured to
// the last but the end.
func used(r *load.Report) float64 {
	var issued, limit int64
	for _, w := range r.Windows {
		if !w.Start.Before(r.Began) && w.Start.Before(r.Began.Add(16*time.Second)) {
			issued, limit = issued+w.Issued, limit+w.Limit
		}
	}
	return float64(issued) / float64(max(limit, 1))
}

// setRow replaces the row of a document's table that begins with name.
func setRow(document, name string, cells []string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	begin := "\n| " + name + " |"
	at := strings.Index(string(text), begin)
	if at < 0 {
		return fmt.Errorf("%s has no row %q", document, begin[1:])
	}
	end := at + 1 + strings.IndexByte(string(text[at+1:]), '\n')
	row := begin + " " + strings.Join(cells, " | ") + " |"
	fmt.Println(row[1:])
	return os.WriteFile(document, append([]byte(string(text[:at])+row), text[end:]...), 0o600)
}
