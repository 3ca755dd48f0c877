package main

import (
	"cmp"
	"context"
	"fmt"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// The size of a picture: as wide as a page of text.
const width, height = 860, 340

var (
	ink    = color.RGBA{R: 0x1f, G: 0x23, B: 0x28, A: 0xff}
	grey   = color.RGBA{R: 0x8c, G: 0x95, B: 0x9f, A: 0xff}
	blue   = color.RGBA{R: 0x2f, G: 0x74, B: 0xd0, A: 0xff}
	orange = color.RGBA{R: 0xc2, G: 0x57, B: 0x0c, A: 0xff}
)

// line is one line of a picture, in steps: each value holds until the next x.
type line struct {
	name   string
	color  color.Color
	points plotter.XYs
	fill   bool
}

// picture is what stands in docs/img.
type picture struct {
	file, title, x, y string
	top               float64 // of y; 0: the largest value
	lines             []line
	marks             map[float64]string // what happened, by x
}

func (p *picture) save() error {
	c := plot.New()
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = p.title, p.x, p.y
	c.Legend.Top, c.Legend.Padding, c.Title.Padding = true, vg.Points(2), vg.Points(4)
	c.Add(plotter.NewGrid())
	for _, l := range p.lines {
		drawn, err := plotter.NewLine(l.points)
		if err != nil {
			return err
		}
		drawn.StepStyle, drawn.Color, drawn.Width = plotter.PostStep, l.color, vg.Points(1.5)
		if l.fill {
			drawn.FillColor = color.NRGBA{R: 0x2f, G: 0x74, B: 0xd0, A: 0x40}
		}
		c.Add(drawn)
		c.Legend.Add(l.name+"\u00a0\u00a0", drawn) // browsers have a wider font
	}
	c.Y.Min = 0
	if c.Y.Max *= 1.2; p.top > 0 { // room for the legend
		c.Y.Max = p.top
	}
	row := 0.0
	for _, at := range slices.Sorted(maps.Keys(p.marks)) {
		labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: at, Y: (0.04 + 0.06*row) * c.Y.Max}}, Labels: []string{"\u2190 " + p.marks[at]}})
		if err != nil {
			return err
		}
		c.Add(labels)
		row = 1 - row
	}
	file := filepath.Join("docs", "img", p.file+".svg")
	if err := c.Save(width*vg.Inch/96, height*vg.Inch/96, file); err != nil {
		return err
	}
	// A dark page shows the picture on white.
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(strings.Replace(string(text), "<svg ", `<svg style="background:#fff" `, 1)), 0o600)
}

// headline is the picture that README.md begins with.
func headline(ctx context.Context, l loadgen) error {
	r, err := l.run(ctx, "--processes", "4", "--crash", "6s", "--change", "18s=200000/s", "--change", "26s=300000/s", "--duration", "36s")
	if err != nil {
		return err
	}
	issued, limit := line{name: "issued", color: blue, fill: true}, line{name: "limit", color: ink}
	for _, w := range r.Windows {
		at := w.Start.Sub(r.Began).Seconds()
		issued.points = append(issued.points, plotter.XY{X: at, Y: float64(w.Issued)})
		limit.points = append(limit.points, plotter.XY{X: at, Y: float64(w.Limit)})
	}
	p := &picture{file: "headline", title: "96 instances under one limit: permits issued, per second", x: "seconds since measuring began", y: "permits",
		lines: []line{issued, limit}, marks: map[float64]string{}}
	for _, e := range r.Events {
		p.marks[e.At.Sub(r.Began).Seconds()] = fmt.Sprint(e.Text)
	}
	return p.save()
}

// bars is a chart of bench/README.md: a bar for each case of one benchmark, with the
// sum of some of its metrics.
type bars struct {
	file, title, unit string
	benchmark, key    string
	metrics           []string
	scale             float64
}

var charts = []bars{
	{"granted", "A permit, granted: one goroutine", "ns of processor time", "Granted", "call", []string{"cpu-ns/op"}, 1},
	{"refused", "A permit, refused: one goroutine", "ns of processor time", "Refused", "call", []string{"cpu-ns/op"}, 1},
	{"waiting", "100,000 wait: processor time for each", "µs", "Waiting", "by", []string{"cpu-ns/waiter"}, 1e-3},
	{"central", "16 callers: processor time for a permit", "µs, callers and server", "Central", "counter", []string{"cpu-ns/permit", "server-cpu-ns/permit"}, 1e-3},
}

func drawCharts(file string) error {
	for _, b := range charts {
		names, values, err := b.read(file)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			fmt.Printf("%s has no %s: its chart stays as it is\n", file, b.benchmark)
			continue
		}
		if err := b.draw(names, values); err != nil {
			return err
		}
	}
	return nil
}

// read returns the cases with their medians, in the order of the file.
func (c *bars) read(file string) (names []string, values map[string]float64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	samples := map[string][]float64{}
	for r := benchfmt.NewReader(f, file); r.Scan(); {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		name, parts := result.Name.Parts()
		if string(name) != c.benchmark || slices.ContainsFunc(parts, func(p []byte) bool { return string(p) == "/goroutines=1000" }) {
			continue
		}
		label := peer.Label(strings.TrimPrefix(string(parts[0]), "/"+c.key+"="))
		sum := 0.0
		for _, v := range result.Values {
			if slices.Contains(c.metrics, cmp.Or(v.OrigUnit, v.Unit)) {
				sum += cmp.Or(v.OrigValue, v.Value) * c.scale
			}
		}
		if samples[label] == nil {
			names = append(names, label)
		}
		samples[label] = append(samples[label], sum)
	}
	values = map[string]float64{}
	for label, all := range samples {
		slices.Sort(all)
		values[label] = all[len(all)/2]
	}
	return names, values, nil
}

func (c *bars) draw(names []string, values map[string]float64) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.title, c.unit
	var labels []string
	for _, name := range slices.Backward(names) {
		bar, err := plotter.NewBarChart(plotter.Values{values[name]}, vg.Points(11))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(len(labels)), color.Color(grey), 0
		if strings.HasPrefix(name, "quotient") {
			bar.Color = blue
		}
		p.Add(bar)
		// The blanks at its end are for browsers: they draw it with a wider font, from
		// where it begins.
		text := fmt.Sprintf("%s %.4g", name, values[name])
		labels = append(labels, text+strings.Repeat("\u00a0", 2+len(text)/2))
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, 1.03*p.X.Max
	return p.Save(7*vg.Inch, vg.Points(70+18*float64(len(names))), filepath.Join("charts", c.file+".svg"))
}
