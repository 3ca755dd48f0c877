package picture

import (
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Within is when the permits of a window are issued. The report's Within must not
// be nil.
func Within(r *load.Report) chart.Chart {
	w := r.Within
	bucket := time.Duration(w.BucketNs)
	c := chart.Chart{
		Title: "Arrivals within a window",
		Says:  "When, within a window, its permits are issued: on average and at most.",
		X:     chart.Axis{Label: "milliseconds into the window", Max: float64(r.WindowNs) / 1e6, Text: plain},
		Y:     chart.Axis{Label: "permits in " + bucket.String(), Max: chart.Above(float64(slices.Max(w.Most)) * 1.02)},
		Series: []chart.Series{
			{Name: "the most of any window", Color: chart.Grey, Step: true, Thin: true},
			{Name: "the mean of all", Color: chart.Blue, Step: true, Fill: true},
		},
	}
	for i, mean := range w.Mean {
		for _, at := range []int{i, i + 1} {
			x := min(float64(at)*float64(w.BucketNs)/1e6, c.X.Max)
			c.Series[0].Points = append(c.Series[0].Points, chart.Point{X: x, Y: float64(w.Most[i])})
			c.Series[1].Points = append(c.Series[1].Points, chart.Point{X: x, Y: mean})
		}
	}
	return c
}

// plain writes a number as it is.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
