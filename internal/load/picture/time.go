package picture

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// timescale turns instants into places on a lower axis: time since measuring
// began, in a unit that makes the numbers short.
type timescale struct {
	zero   time.Time
	unit   time.Duration
	window time.Duration
	axis   chart.Axis
}

// timeline returns the scale of a run, from the first of these windows to the end
// of the last one.
func timeline(r *load.Report, windows []load.Window) timescale {
	t := timescale{zero: r.Began, unit: time.Second, window: time.Duration(r.WindowNs)}
	if len(windows) == 0 {
		t.axis = chart.Axis{Max: 1}
		return t
	}
	if length, err := time.ParseDuration(windows[0].Length); err == nil {
		t.window = length
	}
	first, last := windows[0].Start, windows[len(windows)-1].Start.Add(t.window)
	if t.zero.IsZero() {
		t.zero = first
	}
	name := "seconds"
	switch long := last.Sub(first); {
	case long > 5*time.Hour:
		name, t.unit = "hours", time.Hour
	case long > 5*time.Minute:
		name, t.unit = "minutes", time.Minute
	}
	t.axis = chart.Axis{Label: name + " since measuring began", Min: t.of(first), Max: t.of(last)}
	return t
}

func (t *timescale) of(at time.Time) float64 { return float64(at.Sub(t.zero)) / float64(t.unit) }

func (t *timescale) events(r *load.Report) []chart.Event {
	var list []chart.Event
	for _, e := range r.Events {
		list = append(list, chart.Event{X: t.of(e.At), Text: e.Text})
	}
	return list
}
