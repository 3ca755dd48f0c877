package show

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/uplot"
)

const mostRows = 500

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"thousands": humanize.Comma}).Parse(pageText))
)

// Page writes a report as one HTML file, with all that it needs.
func Page(w io.Writer, title string, r *load.Report) error {
	var summary, verdict strings.Builder
	Summary(&summary, &r.Summary)
	Verdict(&verdict, r)
	asked, err := json.MarshalIndent(r.Config, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	var text bytes.Buffer
	list := figures(r)
	script, style := "/*\n"+uplot.Licence+"*/\n"+uplot.JS+"\n"+pageScript, uplot.CSS+"\n"+pageStyle
	windows := r.Windows
	if err := pageTemplate.Execute(&text, map[string]any{
		"Title": title, "Verdict": strings.TrimSpace(verdict.String()), "Summary": summary.String(), "Asked": string(asked),
		"Class":  map[load.Verdict]string{load.Held: "held", load.NotHeld: "nothed", load.Unused: "nothed", load.Underused: "nothed"}[r.Verdict],
		"Policy": fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'", sum(style), sum(script)),
		//nolint:gosec // both are ours, and hold no data
		"Style": template.CSS(style), "Script": template.JS(script),
		"Figures": list,
		"Windows": windows[:min(len(windows), mostRows)], "More": max(len(windows)-mostRows, 0),
		"Arrivals": len(windows) > 0 && windows[0].Arrived != nil, "Lengths": len(windows) > 0 && windows[0].Length != "",
	}); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	_, err = text.WriteTo(w)
	return err
}

// sum names a text in a Content-Security-Policy.
func sum(text string) string {
	hash := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(hash[:])
}
