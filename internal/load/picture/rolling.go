package picture

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Rolling is how many permits came in any span of the shortest window's length, by
// where it ends, over time. The report's Rolling must not be empty.
func Rolling(r *load.Report) chart.Chart {
	windows := shortest(r)
	scale := timeline(r, windows)
	came := chart.Series{Name: "came in the " + time.Duration(r.WindowNs).String() + " before", Color: chart.Blue, Step: true, Fill: true}
	limit := chart.Series{Name: "limit", Color: chart.Ink, Step: true}
	most := 0.0
	for _, m := range r.Rolling {
		came.Points = append(came.Points, chart.Point{X: scale.of(time.Unix(0, m.At)), Y: float64(m.Permits)})
		most = max(most, float64(m.Permits))
	}
	for _, s := range steps(windows, scale) {
		limit.Points = append(limit.Points, chart.Point{X: s.from, Y: s.limit}, chart.Point{X: s.to, Y: s.limit})
		most = max(most, s.limit)
	}
	return chart.Chart{
		Title:  "Permits in any " + time.Duration(r.WindowNs).String() + ", wherever it begins",
		Says:   "How many permits came to their callers in the last window's length, at each moment, beside the limit.",
		X:      scale.axis,
		Y:      chart.Axis{Label: "permits", Max: chart.Above(most * 1.02)},
		Series: []chart.Series{came, limit},
		Events: scale.events(r),
	}
}

// shortest returns the windows of the shortest limit.
func shortest(r *load.Report) []load.Window {
	for _, w := range r.Windows {
		if length, err := time.ParseDuration(w.Length); err == nil && int64(length) == r.WindowNs {
			return ofLength(r.Windows, w.Length)
		}
	}
	return r.Windows
}
