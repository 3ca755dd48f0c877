package main

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

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

// drawCharts draws all of them from the output of the benchmarks.
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
		label := strings.ReplaceAll(strings.TrimPrefix(string(parts[0]), "/"+c.key+"="), "_", " ")
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

// draw draws horizontal bars, from top to bottom.
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
