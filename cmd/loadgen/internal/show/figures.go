package show

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

const (
	// mostSteps bounds how many steps a chart over time has. Of more windows some
	// are drawn as one, by the largest of each number in them.
	mostSteps = 400
	// mostNines is where the axis of a distribution ends: at 99.999%.
	mostNines = 5
)

// figure is a chart, as page.js draws it with uPlot.
type figure struct {
	Title string              `json:"title"`
	Note  string              `json:"-"`
	X     string              `json:"x"`     // the label of the axis
	Y     string              `json:"y"`     // the same
	Nines bool                `json:"nines"` // x counts nines: 1 is 90%, 2 is 99%
	Log   bool                `json:"log"`   // y is logarithmic
	Most  int64               `json:"most"`  // where y ends; 0: at the largest number
	At    []num               `json:"at"`    // x, rising
	Lines []line              `json:"lines"` // drawn in this order
	Marks []mark              `json:"marks"` // on x
	from  func(time.Time) num // x of an instant
}

func (f *figure) add(at num, values ...num) {
	f.At = append(f.At, at)
	for i, v := range values {
		f.Lines[i].Values = append(f.Lines[i].Values, v)
	}
}

// line is one of a chart's lines. A chart is stacked if its lines say so.
type line struct {
	Name   string `json:"name"`
	Color  string `json:"color"` // a variable of the style sheet, or a number of its ramp
	Values []num  `json:"values"`
	Curve  bool   `json:"curve"` // from point to point, not in steps
	Fill   bool   `json:"fill"`
	Stack  bool   `json:"stack"` // on top of the one before
}

// mark is an event at a place of x.
type mark struct {
	At   num    `json:"at"`
	Text string `json:"text"`
}

// num is a number, or a gap where it is none.
type num float64

// MarshalJSON writes a gap as null.
func (n num) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', 9, 64), nil
}

var gap = num(math.NaN())

func figures(r *load.Report) []figure {
	var list []figure
	lengths, byLength := []string{}, map[string][]load.Window{}
	for _, w := range r.Windows {
		if byLength[w.Length] == nil {
			lengths = append(lengths, w.Length)
		}
		byLength[w.Length] = append(byLength[w.Length], w)
	}
	for _, length := range lengths {
		list = append(list, rate(r, byLength[length], length))
	}
	shortest := byLength[time.Duration(r.WindowNs).String()]
	if shortest == nil {
		shortest = byLength[""]
	}
	if len(r.Rolling) > 0 {
		list = append(list, rolling(r, shortest))
	}
	if r.Within != nil {
		list = append(list, within(r))
	}
	if len(r.Acquire) > 0 {
		f := distribution(r.Acquire, 1, "Acquire latency", "nanoseconds")
		f.Note, f.Log = "Calls that are granted immediately. One in 64 is timed, including two clock readings.", true
		list = append(list, f)
	}
	if n := len(r.Delay); n > 0 && r.Delay[n-1].Ns > 0 {
		f := distribution(r.Delay, 1e6, "Wait time", "milliseconds")
		f.Note = "From the call to its permit. Refused calls are not included."
		list = append(list, f)
	}
	if r.Shares != nil && len(r.Shares.At) > 0 {
		list = append(list, shares(r, shortest))
	}
	return list
}

// overTime is an empty chart over the time since measuring began.
func overTime(r *load.Report, windows []load.Window, title string) figure {
	f := figure{Title: title, Y: "permits", X: "seconds since measuring began", Marks: []mark{}}
	zero, unit := r.Began, time.Second
	if len(windows) > 0 {
		if zero.IsZero() {
			zero = windows[0].Start
		}
		switch long := windows[len(windows)-1].Start.Sub(windows[0].Start); {
		case long > 5*time.Hour:
			f.X, unit = "hours since measuring began", time.Hour
		case long > 5*time.Minute:
			f.X, unit = "minutes since measuring began", time.Minute
		}
	}
	f.from = func(at time.Time) num { return num(at.Sub(zero)) / num(unit) }
	for _, e := range r.Events {
		f.Marks = append(f.Marks, mark{f.from(e.At), e.Text})
	}
	return f
}

// rate is the permits offered, allowed and issued in each window of one length.
func rate(r *load.Report, windows []load.Window, length string) figure {
	long := lengthOf(r, length)
	per := "window of " + long.String()
	if length == "" && long == time.Second {
		per = "second"
	}
	f := overTime(r, windows, "Issued and limit, per "+per)
	f.Note = "A permit counts in the window that it is for. While a change settles, the larger limit applies."
	if r.Summary.Spans != nil {
		f.Note = "A permit counts in the window in which it was issued. The verdict covers spans that begin at any time. While a change settles, the larger limit applies."
	}
	f.Lines = []line{{Name: "issued", Color: "blue", Fill: true}, {Name: "offered", Color: "grey"},
		{Name: "arrived, by the provider's clock", Color: "orange"}, {Name: "limit", Color: "ink"}, {Name: "over the limit", Color: "red"}}
	isOver, values := false, []num(nil)
	for some := range slices.Chunk(windows, (len(windows)+mostSteps-1)/mostSteps) {
		values = []num{0, 0, 0, 0, gap}
		for i := range some {
			w, arrived := &some[i], int64(0)
			if w.Arrived != nil {
				arrived = *w.Arrived
			}
			for j, v := range []int64{w.Issued, w.Offered, arrived, w.Limit} {
				values[j] = max(values[j], num(v))
			}
			if w.Over() {
				values[4], isOver = values[0], true
			}
			f.Most = max(f.Most, w.Limit, w.Issued, arrived)
		}
		f.add(f.from(some[0].Start), values...)
	}
	f.add(f.from(windows[len(windows)-1].Start.Add(long)), values...)
	f.Most = f.Most * 5 / 2 // a hundredfold demand would flatten everything else
	if !isOver {
		f.Lines = f.Lines[:4]
	}
	if windows[0].Arrived == nil {
		f.Lines = slices.Delete(f.Lines, 2, 3)
	}
	return f
}

// limitAt returns the limit of the window around an instant.
func limitAt(windows []load.Window, at time.Time) num {
	limit := gap
	for i := range windows {
		if windows[i].Start.After(at) {
			break
		}
		limit = num(windows[i].Limit)
	}
	return limit
}

// rolling is how many permits came in any span of the shortest window's length, by
// where it ends.
func rolling(r *load.Report, windows []load.Window) figure {
	length := time.Duration(r.WindowNs).String()
	f := overTime(r, windows, "Permits in a sliding window of "+length)
	f.Note = "Counted in 10 ms buckets when callers get them; each step shows its maximum. Fixed windows allow up to twice the limit at a boundary, the shape sliding does not, and the shape bucket allows its burst in addition."
	f.Lines = []line{{Name: "issued in the last " + length, Color: "blue", Fill: true}, {Name: "limit", Color: "ink"}}
	for _, m := range r.Rolling {
		at := time.Unix(0, m.At)
		f.add(f.from(at), num(m.Permits), limitAt(windows, at))
	}
	return f
}

func within(r *load.Report) figure {
	w := r.Within
	f := figure{Title: "Permits within a window", X: "milliseconds into the window", Y: "permits in " + time.Duration(w.BucketNs).String(),
		Note:  "All measured windows, by the time from their start.",
		Lines: []line{{Name: "maximum", Color: "grey"}, {Name: "mean", Color: "blue", Fill: true}}}
	for i := range w.Mean {
		f.add(num(i)*num(w.BucketNs)/1e6, num(w.Most[i]), num(w.Mean[i]))
	}
	return f
}

// distribution draws a curve over the part of all calls that took no longer: each
// step of the axis leaves a tenth of the calls that the one before left.
func distribution(curve []load.Quantile, unit float64, title, y string) figure {
	f := figure{Title: title, X: "percentile", Y: y, Nines: true, Lines: []line{{Name: y, Color: "blue", Curve: true}}}
	for _, q := range curve {
		nines, took := num(mostNines), num(max(float64(q.Ns)/unit, 0))
		if q.Part < 1 {
			nines = num(min(-math.Log10(1-q.Part), mostNines))
		}
		if n := len(f.At); n > 0 && f.At[n-1] >= nines {
			f.Lines[0].Values[n-1] = took
			continue
		}
		f.add(nines, took)
	}
	return f
}

func shares(r *load.Report, windows []load.Window) figure {
	f := overTime(r, windows, "Shares, stacked by instance")
	f.Y = "permits a window"
	f.Note = "The shares that the instances report. The first chart counts the permits that are issued."
	for i, name := range r.Shares.Names {
		f.Lines = append(f.Lines, line{Name: name, Color: strconv.Itoa(i), Fill: true, Stack: true})
	}
	f.Lines = append(f.Lines, line{Name: "limit", Color: "ink"})
	for i, ns := range r.Shares.At {
		at, values := time.Unix(0, ns), []num(nil)
		for _, sum := range r.Shares.Sums[i] {
			values = append(values, num(sum))
		}
		f.add(f.from(at), append(values, limitAt(windows, at))...)
	}
	return f
}
