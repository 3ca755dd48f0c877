package report

import (
	"image/color"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Bar is one bar of a chart.
type Bar struct {
	Label string
	Value float64
	// Ours marks what is drawn in another colour.
	Ours bool
}

// Chart is a chart of horizontal bars, drawn from top to bottom.
type Chart struct {
	File, Title, Unit string
	Bars              []Bar
}

var (
	ours   = color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}
	others = color.RGBA{R: 0xb0, G: 0xb0, B: 0xb0, A: 0xff}
)

// Save writes the chart as SVG.
func (c Chart) Save(path string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.Title, c.Unit
	var labels []string
	for _, b := range slices.Backward(c.Bars) {
		bar, err := plotter.NewBarChart(plotter.Values{b.Value}, vg.Points(11))
		if err != nil {
			return err
		}
		bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, float64(len(labels)), others, 0
		if b.Ours {
			bar.Color = ours
		}
		p.Add(bar)
		labels = append(labels, label(b))
	}
	p.NominalY(labels...)
	p.X.Min, p.X.Max = 0, 1.03*p.X.Max
	return p.Save(7*vg.Inch, vg.Points(70+18*float64(len(c.Bars))), path)
}

// label is the bar's label with its value, which tells more where one bar dwarfs
// the others. The blanks at its end are for browsers: they draw it with a font
// of their own, which may be a quarter wider, from where it begins.
func label(b Bar) string {
	text := b.Label + " " + strconv.FormatFloat(b.Value, 'g', 3, 64)
	if b.Value >= 1000 {
		text = b.Label + " " + strconv.FormatFloat(b.Value, 'f', 0, 64)
	}
	return text + strings.Repeat("\u00a0", 2+len(text)/2)
}
