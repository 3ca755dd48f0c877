package main

import (
	"context"
	"fmt"
	"image/color"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
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

// save draws it.
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
func headline(ctx context.Context, l *loadgen) error {
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
