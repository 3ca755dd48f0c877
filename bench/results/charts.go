package main

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// chart has a bar for each case of a benchmark, with the sum of some of its units.
type chart struct {
	file, title, unit string
	prefix, suffix    string // of the cases' names
	units             []string
	scale             float64
}

var charts = []chart{
	{"granted", "A permit, granted: one goroutine", "ns of processor time", "Granted/call=", "/goroutines=1", []string{"cpu-ns/op"}, 1},
	{"refused", "A permit, refused: one goroutine", "ns of processor time", "Refused/call=", "/goroutines=1", []string{"cpu-ns/op"}, 1},
	{"waiting", "100,000 wait: processor time for each", "µs", "Waiting/by=", "", []string{"cpu-ns/waiter"}, 1e-3},
	{"central", "16 callers: processor time for a permit", "µs, callers and server", "Central/counter=", "", []string{"cpu-ns/permit", "server-cpu-ns/permit"}, 1e-3},
}

// drawCharts draws the charts of docs/proof/bench.md, by a file of results.
func drawCharts(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	r, err := read(text)
	for i := range charts {
		if err == nil {
			err = charts[i].draw(r)
		}
	}
	return err
}

func (c *chart) draw(r *results) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.title, c.unit
	var labels []string
	for _, label := range slices.Backward(r.labels(c.prefix, c.suffix)) {
		sum, name := 0.0, peer.Label(label)
		for _, unit := range c.units {
			if v := r.of(c.prefix+label+c.suffix, unit); !math.IsNaN(v) {
				sum += v * c.scale
			}
		}
		bar, err := plotter.NewBarChart(plotter.Values{sum}, vg.Points(11))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(len(labels)), color.RGBA{R: 0x8c, G: 0x95, B: 0x9f, A: 0xff}, 0
		if strings.HasPrefix(name, "quotient") {
			bar.Color = color.RGBA{R: 0x2f, G: 0x74, B: 0xd0, A: 0xff}
		}
		p.Add(bar)
		// The blanks at its end are for browsers: they draw it with a wider font, from
		// where it begins.
		text := fmt.Sprintf("%s %.4g", name, sum)
		labels = append(labels, text+strings.Repeat("\u00a0", 2+len(text)/2))
	}
	if len(labels) == 0 {
		return fmt.Errorf("there are no results of %s", c.prefix)
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, 1.03*p.X.Max
	return p.Save(7*vg.Inch, vg.Points(70+18*float64(len(labels))), filepath.Join("..", "docs", "img", "bench", c.file+".svg"))
}
