package picture

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

const (
	// mostSteps bounds how many steps a chart over time has. Of more windows some
	// are drawn as one, by the largest of each number in them.
	mostSteps = 400
	// mostHints bounds how many windows tell their numbers to a pointing device.
	mostHints = 150
	// headroom is how far the axis goes beyond the limit at most, as a factor of
	// it: a hundredfold demand would flatten everything else.
	headroom = 2.5
)

// Rate is what was offered, allowed and issued in each window of one length, as in
// Window.Length, over time.
func Rate(r *load.Report, length string) chart.Chart {
	windows := ofLength(r.Windows, length)
	time := timeline(r, windows)
	c := chart.Chart{
		Title: "Issued and limit, per " + perText(r, length),
		Says:  "Permits issued in each window, beside the limit and the calls offered.",
		Y:     chart.Axis{Label: "permits", Max: chart.Above(ceiling(windows))},
		X:     time.axis,
	}
	issued := chart.Series{Name: "issued", Color: chart.Blue, Step: true, Fill: true}
	over := chart.Series{Color: chart.Red, Step: true, Fill: true}
	limit := chart.Series{Name: "limit", Color: chart.Ink, Step: true}
	offered := chart.Series{Name: "offered", Color: chart.Grey, Step: true, Thin: true}
	arrived := chart.Series{Color: chart.Orange, Step: true, Thin: true}
	for _, s := range steps(windows, time) {
		for _, at := range []float64{s.from, s.to} {
			issued.Points = append(issued.Points, chart.Point{X: at, Y: s.issued})
			over.Points = append(over.Points, chart.Point{X: at, Y: max(s.issued, s.most), Base: s.most})
			limit.Points = append(limit.Points, chart.Point{X: at, Y: s.limit})
			offered.Points = append(offered.Points, chart.Point{X: at, Y: s.offered})
			arrived.Points = append(arrived.Points, chart.Point{X: at, Y: s.arrived})
			if s.over {
				over.Name = "over the limit"
			}
			if s.some {
				arrived.Name = "arrived, by the provider's clock"
			}
		}
	}
	c.Series = []chart.Series{issued, offered}
	if arrived.Name != "" {
		c.Series = append(c.Series, arrived)
	}
	c.Series = append(c.Series, limit)
	if over.Name != "" {
		c.Series = append(c.Series, over)
	}
	c.Events = time.events(r)
	c.Hints = hints(windows, time)
	return c
}

// perText says what the numbers of a window are per.
func perText(r *load.Report, length string) string {
	switch {
	case length != "":
		return "window of " + length
	case r.WindowNs == int64(time.Second):
		return "second"
	}
	return "window of " + time.Duration(r.WindowNs).String()
}

func ofLength(windows []load.Window, length string) []load.Window {
	var some []load.Window
	for _, w := range windows {
		if w.Length == length {
			some = append(some, w)
		}
	}
	return some
}

// ceiling is the largest number to be drawn.
func ceiling(windows []load.Window) float64 {
	var most, offered int64
	for _, w := range windows {
		most = max(most, w.Limit, w.Issued)
		offered = max(offered, w.Offered)
		if w.Arrived != nil {
			most = max(most, *w.Arrived)
		}
	}
	return min(float64(max(offered, most)), headroom*float64(most)) * 1.02
}

// step is one window, or several in a row.
type step struct {
	from, to                        float64
	issued, limit, offered, arrived float64
	most                            float64 // what the window may hold
	over, some                      bool
}

func steps(windows []load.Window, t timescale) []step {
	each := (len(windows) + mostSteps - 1) / mostSteps
	var list []step
	for i := range windows {
		w := &windows[i]
		from := t.of(w.Start)
		if i%max(each, 1) == 0 {
			list = append(list, step{from: from})
		}
		s := &list[len(list)-1]
		s.to = t.of(w.Start.Add(t.window))
		s.issued, s.limit = max(s.issued, float64(w.Issued)), max(s.limit, float64(w.Limit))
		s.most = max(s.most, float64(w.Most()))
		s.offered = max(s.offered, float64(w.Offered))
		s.over = s.over || w.Over()
		if w.Arrived != nil {
			s.arrived, s.some = max(s.arrived, float64(*w.Arrived)), true
		}
	}
	return list
}

func hints(windows []load.Window, t timescale) []chart.Hint {
	if len(windows) > mostHints {
		return nil
	}
	var list []chart.Hint
	for _, w := range windows {
		list = append(list, chart.Hint{From: t.of(w.Start), To: t.of(w.Start.Add(t.window)), Text: fmt.Sprintf(
			"%s: limit %s, offered %s, issued %s, %d instances", w.Start.UTC().Format("15:04:05.999"),
			Thousands(w.Limit), Thousands(w.Offered), Thousands(w.Issued), w.Instances)})
	}
	return list
}

// Thousands writes a number with commas.
func Thousands(n int64) string {
	s, sign := strconv.FormatInt(n, 10), ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
