// Package report writes results down: Markdown with tables, and the goals with what
// came out.
package report

import (
	"fmt"
	"strconv"
	"strings"
)

// Goal is what was aimed at, and what came out.
type Goal struct {
	What, Want, Got string
	// Met is yes, no, or empty where there is no bound.
	Met string
	// Note is the reason, where it was not met, or what to know about it.
	Note string
}

// Section is one part of the results.
type Section struct {
	Title  string
	Goals  []Goal
	Charts []Chart
	text   strings.Builder
}

// Text appends a paragraph. go vet checks the format as it does Printf's.
func (s *Section) Text(format string, args ...any) {
	fmt.Fprintf(&s.text, format, args...)
	s.text.WriteString("\n\n")
}

// Table appends a table. Columns after the first hold numbers.
func (s *Section) Table(header []string, rows [][]string) {
	writeRow(&s.text, header)
	s.text.WriteString("|---|" + strings.Repeat("---:|", len(header)-1) + "\n")
	for _, r := range rows {
		writeRow(&s.text, r)
	}
	s.text.WriteString("\n")
}

func writeRow(b *strings.Builder, cells []string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// Draw adds a chart and shows it at this place.
func (s *Section) Draw(c Chart) {
	s.Charts = append(s.Charts, c)
	s.Text("![%s](charts/%s.svg)", c.Title, c.File)
}

// Aim notes a goal with an upper bound. It is met if the value, rounded as it
// is printed, is no more than that.
func (s *Section) Aim(what, format string, want, got float64, note string) {
	printed := fmt.Sprintf(format, got)
	rounded, err := strconv.ParseFloat(printed, 64)
	met := "no"
	if err == nil && rounded <= want {
		met = "yes"
	}
	s.Goals = append(s.Goals, Goal{What: what, Want: "at most " + fmt.Sprintf(format, want), Got: printed, Met: met, Note: note})
}

// Tell notes what has no bound, and belongs among the goals all the same.
func (s *Section) Tell(what, got, note string) {
	s.Goals = append(s.Goals, Goal{What: what, Want: "to be told", Got: got, Note: note})
}

// Pass notes a goal with a lower bound.
func (s *Section) Pass(what, format string, want, got float64, note string) {
	met := "no"
	if got > want {
		met = "yes"
	}
	s.Goals = append(s.Goals, Goal{
		What: what, Want: "more than " + fmt.Sprintf(format, want), Got: fmt.Sprintf(format, got), Met: met, Note: note,
	})
}
