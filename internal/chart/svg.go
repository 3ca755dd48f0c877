package chart

import (
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Sizes of a drawing, in its units, which are the reader's pixels where it is not
// scaled.
const (
	charWidth  = 6.7 // of a text of 12 units, on average and a little more
	lineHeight = 18
	topHeight  = 26 // of a title
	tickSpace  = 90 // along the lower axis, for one tick
	edge       = 14
)

// drawing is a chart on its way to SVG.
type drawing struct {
	*Chart
	b                        strings.Builder
	width, height            float64
	left, right, top, bottom float64 // of the field between the axes
	rows                     []int   // by event: which row its text stands in
}

// Alone returns the chart as a file of its own, readable on light and dark
// backgrounds.
func (c *Chart) Alone(width, height int) string {
	return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + c.draw(width, height, "<style>"+Style()+"</style>") + "\n"
}

// Inline returns the chart as part of an HTML page that has Style in it.
func (c *Chart) Inline(width, height int) string { return c.draw(width, height, "") }

func (c *Chart) draw(width, height int, style string) string {
	d := &drawing{Chart: c, width: float64(width), height: float64(height)}
	d.lay()
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`,
		width, height, width, height, escape(c.Says))
	d.b.WriteString(style)
	d.head()
	d.axes()
	for i := range c.Series {
		d.series(&c.Series[i])
	}
	d.events()
	d.hints()
	d.b.WriteString("</svg>")
	return d.b.String()
}

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

// lay finds the field between the axes.
func (d *drawing) lay() {
	widest := 0
	for _, t := range d.Y.ticks(d.rowsOfTicks()) {
		widest = max(widest, len([]rune(t.Text)))
	}
	d.left = edge + float64(widest)*charWidth
	d.right = d.width - edge
	d.bottom = d.height - 2*lineHeight
	d.layEvents()
	rows := 0
	for _, r := range d.rows {
		rows = max(rows, r+1)
	}
	d.top = d.titleHeight() + lineHeight*float64(len(d.legend())+rows) + 8
	if d.Y.Label != "" {
		d.top += lineHeight + 6
	}
}

func (d *drawing) titleHeight() float64 {
	if d.Title == "" {
		return 4
	}
	return topHeight
}

func (d *drawing) rowsOfTicks() int { return max(2, int(d.height/60)) }

func (d *drawing) x(v float64) float64 { return d.left + d.X.place(v)*(d.right-d.left) }
func (d *drawing) y(v float64) float64 { return d.bottom - d.Y.place(v)*(d.bottom-d.top) }

// legend divides the names into rows.
func (d *drawing) legend() [][]*Series {
	var rows [][]*Series
	room := 0.0
	for i := range d.Series {
		s := &d.Series[i]
		if s.Name == "" {
			continue
		}
		need := nameWidth(s.Name)
		if need > room || rows == nil {
			rows, room = append(rows, nil), d.width-2*edge
		}
		room -= need
		rows[len(rows)-1] = append(rows[len(rows)-1], s)
	}
	return rows
}

func nameWidth(name string) float64 { return 38 + float64(len([]rune(name)))*charWidth }

// head writes the title, the legend and the upright axis's label.
func (d *drawing) head() {
	if d.Title != "" {
		d.text(edge/2, 18, "title", "", d.Title)
	}
	at := d.titleHeight() + lineHeight - 5
	for _, row := range d.legend() {
		x := float64(edge) / 2
		for _, s := range row {
			if s.Fill {
				d.put(`<path class="a %s" d="M%s,%sh18v10h-18z"/>`, s.Color.class(), num(x), num(at-9))
			} else {
				d.put(`<path class="%s" d="M%s,%sh18"/>`, s.class(), num(x), num(at-4))
			}
			d.text(x+24, at, "name", "", s.Name)
			x += nameWidth(s.Name)
		}
		at += lineHeight
	}
	if d.Y.Label != "" {
		d.text(edge/2, at+2, "", "", d.Y.Label)
	}
}

// axes writes the grid, what is marked on it, and the lower axis's label.
func (d *drawing) axes() {
	for _, t := range d.Y.ticks(d.rowsOfTicks()) {
		y := d.y(t.At)
		d.put(`<path class="grid" d="M%s,%sH%s"/>`, num(d.left), num(y), num(d.right))
		d.text(d.left-6, y+4, "", "end", t.Text)
	}
	last := math.Inf(-1)
	for _, t := range d.X.ticks(int((d.right - d.left) / tickSpace)) {
		x := d.x(t.At)
		d.put(`<path class="grid" d="M%s,%sv4"/>`, num(x), num(d.bottom))
		half := float64(len([]rune(t.Text)))*charWidth/2 + 4
		middle := min(max(x, half), d.width-half)
		if middle-half < last {
			continue // no room for the text
		}
		last = middle + half
		d.text(middle, d.bottom+17, "", "middle", t.Text)
	}
	if d.X.Label != "" {
		d.text(d.right, d.height-4, "", "end", d.X.Label)
	}
}

func (d *drawing) text(x, y float64, class, anchor, text string) {
	d.put(`<text x="%s" y="%s"`, num(x), num(y))
	if class != "" {
		d.put(` class="%s"`, class)
	}
	if anchor != "" {
		d.put(` text-anchor="%s"`, anchor)
	}
	d.put(`>%s</text>`, escape(text))
}

// escape writes text for XML and HTML alike. What XML cannot say becomes U+FFFD.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // memory takes everything
	return b.String()
}

// num writes a coordinate.
func num(v float64) string {
	if math.IsNaN(v) {
		v = 0
	}
	v = math.Round(v*10) / 10
	if v == 0 {
		v = 0 // not -0
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
