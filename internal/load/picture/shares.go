package picture

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// mostBands is how many bands the shares are folded into.
const mostBands = 10

// Shares is what each instance may issue, stacked, over time; of a large fleet,
// some instances together. The report's Shares must not be nil.
func Shares(r *load.Report) chart.Chart {
	at, bands := r.Shares.Bands(mostBands)
	shortest := ""
	for _, w := range r.Windows {
		if d, err := time.ParseDuration(w.Length); err == nil && int64(d) == r.WindowNs {
			shortest = w.Length
		}
	}
	scale := timeline(r, ofLength(r.Windows, shortest))
	c := chart.Chart{
		Title: "Shares, stacked by instance",
		Says:  "The share of each instance over time, on top of each other, beside the limit.",
		X:     scale.axis,
		Y:     chart.Axis{Label: "permits a window", Max: 1},
	}
	var stack []chart.Series
	for i, b := range bands {
		s := chart.Series{Color: chart.Ramp(i, len(bands)), Step: true, Fill: true}
		for j, sum := range b.Sums {
			s.Points = append(s.Points, chart.Point{X: scale.of(time.Unix(0, at[j])), Y: float64(sum)})
		}
		stack = append(stack, s)
	}
	c.Series = chart.Stack(stack)
	limit := chart.Series{Name: "limit", Color: chart.Ink, Step: true}
	for _, s := range steps(ofLength(r.Windows, shortest), scale) {
		limit.Points = append(limit.Points, chart.Point{X: s.from, Y: s.limit}, chart.Point{X: s.to, Y: s.limit})
	}
	c.Series = append(c.Series, limit)
	for _, s := range c.Series {
		for _, p := range s.Points {
			c.Y.Max = max(c.Y.Max, p.Y)
		}
	}
	c.Y.Max = chart.Above(c.Y.Max * 1.02)
	c.Events = scale.events(r)
	nameBands(c.Series, bands)
	return c
}

// nameBands tells in the legend what the first band is and what the last one.
func nameBands(series []chart.Series, bands []load.Band) {
	if len(bands) == 0 {
		return
	}
	text := func(n int) string {
		if n == 1 {
			return "1 instance"
		}
		return fmt.Sprintf("%d instances", n)
	}
	if len(bands) == 1 {
		series[0].Name = text(bands[0].Holders)
		return
	}
	series[0].Name = "each band " + text(bands[0].Holders) + ", first come lowest"
	series[len(bands)-1].Name = "last come"
}
