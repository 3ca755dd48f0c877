package report

import "strings"

// Markdown returns the results as text: about the machine, the goals, then one
// chapter for each section.
func Markdown(about [][2]string, intro string, sections []*Section) string {
	var b, goals strings.Builder
	b.WriteString("# Results\n\n" + intro + "\n\n| | |\n|---|---|\n")
	for _, kv := range about {
		writeRow(&b, kv[:])
	}
	for _, s := range sections {
		for _, g := range s.Goals {
			writeRow(&goals, []string{g.What, g.Want, g.Got, g.Met, g.Note})
		}
	}
	if goals.Len() > 0 {
		b.WriteString("\n## Goals\n\n| what | goal | measured | met |  |\n|---|---|---|---|---|\n" + goals.String())
	}
	for _, s := range sections {
		b.WriteString("\n## " + s.Title + "\n\n" + strings.TrimRight(s.text.String(), "\n") + "\n")
	}
	return b.String()
}
