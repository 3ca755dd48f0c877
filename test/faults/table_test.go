//go:build e2e && linux

package faults

import (
	"errors"
	"os"
	"strings"
)

// marks are the lines of a document between which a table stands.
type marks struct{ begin, end string }

var scenarioMarks = marks{"<!-- made by make e2e: begin -->\n", "<!-- made by make e2e: end -->\n"}

// rewrite replaces what stands between the marks by what table makes of it.
// Where there is no document, or no place in it, it is made at its end.
func (m marks) rewrite(file string, table func(old string) string) error {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	before, rest, ok := strings.Cut(string(text), m.begin)
	old, after, okEnd := strings.Cut(rest, m.end)
	if ok != okEnd {
		return errors.New(file + " has one mark of two: " + m.begin + m.end)
	}
	return os.WriteFile(file, []byte(before+m.begin+table(old)+m.end+after), 0o644)
}

// renew returns a table's lines in the order of the keys, with which they begin:
// the new ones, and old ones that have no successor.
func renew(old string, keys, lines []string) string {
	var table strings.Builder
	for _, key := range keys {
		found := ""
		for line := range strings.Lines(old + strings.Join(lines, "")) {
			if strings.HasPrefix(line, key) {
				found = line
			}
		}
		table.WriteString(found)
	}
	return table.String()
}

// writeTable puts lines into the table of scenarios in a document. Those that
// were not played now stay as they are.
func writeTable(file string, lines []string) error {
	var keys []string
	for _, s := range scenarios {
		keys = append(keys, (&result{name: s.name, outage: string(s.outage)}).key())
	}
	return scenarioMarks.rewrite(file, func(old string) string { return head() + renew(old, keys, lines) })
}
