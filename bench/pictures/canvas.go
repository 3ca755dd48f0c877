package main

import (
	"fmt"
	"html"
	"strings"
)

// canvas is a drawing by hand, in pixels, on white: so a dark page shows it as a light one
// does.
type canvas struct{ text strings.Builder }

// The colours of drawings, beside those of the charts.
const (
	inkHex, greyHex, blueHex, orangeHex, greenHex, redHex = "#1f2328", "#59636e", "#2f74d0", "#c2570c", "#1a7f37", "#cf222e"
	lineHex, paleHex                                      = "#d1d9e0", "#eef1f4"
)

// newCanvas returns a drawing with a title. says describes it to those who cannot see it.
func newCanvas(height int, title, says string) *canvas {
	c := new(canvas)
	fmt.Fprintf(&c.text, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" style="background:#fff" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif" font-size="13">`+"\n",
		width, height, width, height, html.EscapeString(says))
	c.text.WriteString(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0,0L8,4L0,8z" fill="#59636e"/></marker></defs>` + "\n")
	fmt.Fprintf(&c.text, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&c.text, `<text x="14" y="24" font-size="16" font-weight="600" fill="%s">%s</text>`+"\n", inkHex, html.EscapeString(title))
	return c
}

// box draws a filled rectangle, with words in its middle.
func (c *canvas) box(x, y, w, h float64, fill, stroke, words string) {
	fmt.Fprintf(&c.text, `<rect x="%.5g" y="%.5g" width="%.5g" height="%.5g" rx="3" fill="%s" stroke="%s"/>`+"\n", x, y, w, h, fill, stroke)
	lines := strings.Split(words, "\n")
	for i, line := range lines {
		if line != "" {
			c.words(x+w/2, y+h/2+4.5+17*(float64(i)-float64(len(lines)-1)/2), "middle", inkHex, line)
		}
	}
}

// line draws a straight line.
func (c *canvas) line(x1, y1, x2, y2 float64, colour string, dashed bool) {
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="5 4"`
	}
	fmt.Fprintf(&c.text, `<path d="M%.5g,%.5gL%.5g,%.5g" stroke="%s" stroke-width="1.5" fill="none"%s/>`+"\n", x1, y1, x2, y2, colour, dash)
}

// arrow draws a line with a tip at its end, or at both.
func (c *canvas) arrow(x1, y1, x2, y2 float64, both bool) {
	start := ""
	if both {
		start = ` marker-start="url(#tip)"`
	}
	fmt.Fprintf(&c.text, `<path d="M%.5g,%.5gL%.5g,%.5g" stroke="%s" stroke-width="1.5" fill="none" marker-end="url(#tip)"%s/>`+"\n", x1, y1, x2, y2, greyHex, start)
}

// words writes one line. anchor is start, middle or end.
func (c *canvas) words(x, y float64, anchor, colour, text string) {
	fmt.Fprintf(&c.text, `<text x="%.5g" y="%.5g" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, html.EscapeString(text))
}

// String returns the file.
func (c *canvas) String() string { return c.text.String() + "</svg>\n" }
