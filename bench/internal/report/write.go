package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func fmtInt(n int) string { return strconv.Itoa(n) }

// Write writes RESULTS.md and the charts into the folder.
func Write(folder string, about [][2]string, intro string, sections []*Section) error {
	charts := filepath.Join(folder, "charts")
	if err := os.MkdirAll(charts, 0o750); err != nil {
		return err
	}
	for _, s := range sections {
		for _, c := range s.Charts {
			if err := c.Save(filepath.Join(charts, c.File+".svg")); err != nil {
				return fmt.Errorf("chart %s: %w", c.File, err)
			}
		}
	}
	return os.WriteFile(filepath.Join(folder, "RESULTS.md"), []byte(Markdown(about, intro, sections)), 0o600)
}

// Markdown returns the results as text: about the machine, the goals, then one
// chapter for each section.
func Markdown(about [][2]string, intro string, sections []*Section) string {
	var b strings.Builder
	b.WriteString("# Results\n\n" + intro + "\n\n| | |\n|---|---|\n")
	for _, kv := range about {
		writeRow(&b, kv[:])
	}
	writeGoals(&b, sections)
	for _, s := range sections {
		b.WriteString("\n## " + s.Title + "\n\n")
		b.WriteString(strings.TrimRight(s.text.String(), "\n") + "\n")
	}
	return b.String()
}

// writeGoals writes the goals of all sections, if there are any.
func writeGoals(b *strings.Builder, sections []*Section) {
	if !slices.ContainsFunc(sections, func(s *Section) bool { return len(s.Goals) > 0 }) {
		return
	}
	b.WriteString("\n## Goals\n\n")
	writeRow(b, []string{"what", "goal", "measured", "met", ""})
	b.WriteString("|---|---|---|---|---|\n")
	for _, s := range sections {
		for _, g := range s.Goals {
			writeRow(b, []string{g.What, g.Want, g.Got, g.Met, g.Note})
		}
	}
}
