package picture

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/quotient-limiter/quotient/internal/chart"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Page is a report as one HTML file, without scripts and without anything that
// would have to be loaded.
type Page struct {
	Title   string
	Verdict string // a line of text
	Report  *load.Report
	Facts   []Fact // what the run came to
	Asked   []Fact // what was asked for
}

// Fact is a name and what it is, as text.
type Fact struct{ Name, Value string }

// mostRows bounds the table of windows.
const mostRows = 500

// The drawings are made for two widths: the page shows the one that fits.
const (
	wideWidth, wideHeight     = 860, 320
	narrowWidth, narrowHeight = 360, 260
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"thousands": Thousands}).Parse(pageText))
)

// figure is a chart on the page.
type figure struct {
	Title, Note  string
	Wide, Narrow template.HTML
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	style := chart.Style() + pageStyle
	hash := sha256.Sum256([]byte(style))
	windows := p.Report.Windows
	return pageTemplate.Execute(w, map[string]any{
		"Page": p, "Class": map[load.Verdict]string{load.Held: "held", load.NotHeld: "nothed"}[p.Report.Verdict],
		"Policy":  fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'", base64.StdEncoding.EncodeToString(hash[:])),
		"Style":   template.CSS(style), //nolint:gosec // it is ours, and holds no data
		"Figures": p.figures(),
		"Windows": windows[:min(len(windows), mostRows)], "More": max(len(windows)-mostRows, 0),
		"Arrivals": len(windows) > 0 && windows[0].Arrived != nil, "Lengths": len(windows) > 0 && windows[0].Length != "",
	})
}

// figures draws what there is to be seen.
func (p *Page) figures() []figure {
	r := p.Report
	var list []figure
	add := func(c chart.Chart, note string) {
		f := figure{Title: c.Title, Note: note}
		c.Title = ""
		//nolint:gosec // package chart escapes every text
		f.Wide, f.Narrow = template.HTML(c.Inline(wideWidth, wideHeight)), template.HTML(c.Inline(narrowWidth, narrowHeight))
		list = append(list, f)
	}
	seen := map[string]bool{}
	note := "Permits count in the window that they are for; so does the verdict. While a change settles, the limit is the larger one."
	if r.Summary.Spans != nil {
		note = "Permits count in the window in which they were issued. The verdict is on spans that begin anywhere. While a change settles, the limit is the larger one."
	}
	for _, w := range r.Windows {
		if !seen[w.Length] {
			seen[w.Length] = true
			add(Rate(r, w.Length), note)
		}
	}
	if len(r.Rolling) > 0 {
		add(Rolling(r), "By when they came to their callers, in 10 ms cells: of spans that end near each other, the fullest. Fixed windows allow up to twice the limit here, at a boundary; the shape sliding does not; the shape bucket allows its burst on top.")
	}
	if r.Within != nil {
		add(Within(r), "All windows that were measured, on top of each other, by when their permits were issued.")
	}
	if len(r.Acquire) > 0 {
		add(Acquire(r), "How long a call took that was granted at once: one in 64 is timed, two readings of the clock included.")
	}
	if len(r.Delay) > 0 && r.Delay[len(r.Delay)-1].Ns > 0 {
		add(Delay(r), "From the call to its permit, in the measured time. Refused calls are not in it.")
	}
	if r.Shares != nil {
		if c := Shares(r); len(c.Series) > 1 {
			add(c, "What each instance may issue, by what it says itself. What was really issued is counted apart, in the first chart.")
		}
	}
	return list
}
