package picture

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// mostNines is where the axis of a distribution ends: at 99.999%.
const mostNines = 5

// Acquire is how long calls took that were granted at once. The report's Acquire
// must not be empty.
func Acquire(r *load.Report) chart.Chart {
	c := distribution(r.Acquire, time.Nanosecond)
	c.Title, c.Says = "What a permit costs", "How long calls took that were granted at once, by quantile."
	low, high := math.Inf(1), 0.0
	for _, p := range c.Series[0].Points {
		low, high = min(low, p.Y), max(high, p.Y)
	}
	c.Y = chart.Axis{
		Min: math.Pow(10, math.Floor(math.Log10(max(low, 1)))), Max: math.Pow(10, math.Floor(math.Log10(max(high, 1)))+1), Log: true,
		Text: func(ns float64) string { return time.Duration(ns).String() },
	}
	return c
}

// Delay is how long calls waited for their permits. The report's Delay must not be
// empty.
func Delay(r *load.Report) chart.Chart {
	c := distribution(r.Delay, time.Millisecond)
	c.Title, c.Says = "How long calls waited", "How long calls waited for their permits, by quantile."
	high := 0.0
	for _, p := range c.Series[0].Points {
		high = max(high, p.Y)
	}
	c.Y = chart.Axis{Label: "milliseconds", Max: chart.Above(high * 1.02), Text: plain}
	return c
}

// distribution draws a curve over the part of all calls that took no longer: each
// step of the axis leaves a tenth of the calls that the one before left.
func distribution(curve []load.Quantile, unit time.Duration) chart.Chart {
	last := 1.0
	s := chart.Series{Color: chart.Blue}
	for _, q := range curve {
		nines := float64(mostNines)
		if q.Part < 1 {
			nines = min(-math.Log10(1-q.Part), nines)
		}
		last = max(last, nines)
		s.Points = append(s.Points, chart.Point{X: nines, Y: float64(q.Ns) / float64(unit)})
	}
	ticks := []chart.Tick{{At: 0, Text: "0%"}, {At: -math.Log10(0.5), Text: "50%"}}
	for i, text := range []string{"90%", "99%", "99.9%", "99.99%", "99.999%"} {
		if at := float64(i + 1); at <= last {
			ticks = append(ticks, chart.Tick{At: at, Text: text})
		}
	}
	return chart.Chart{
		Series: []chart.Series{s},
		X:      chart.Axis{Label: "of all calls took at most so long", Max: last, Ticks: ticks},
	}
}
