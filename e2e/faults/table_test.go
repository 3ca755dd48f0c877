//go:build e2e && linux

package faults

import (
	"errors"
	"os"
	"strings"
)

// The table stands between these lines.
const (
	tableBegins = "<!-- made by make e2e: begin -->\n"
	tableEnds   = "<!-- made by make e2e: end -->\n"
)

// writeTable puts lines, by their keys, into the table between its marks in a
// document, in the order of the scenarios. Those of scenarios that were not
// played now stay as they are. Where there is no document it is made.
func writeTable(file string, lines map[string]string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte(tableBegins+tableEnds), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	old, after, okEnd := strings.Cut(rest, tableEnds)
	if !ok || !okEnd {
		return errors.New(file + " has no place for the table")
	}
	table := head()
	for _, s := range scenarios {
		key := (&result{name: s.name, outage: string(s.outage)}).key()
		if line := lines[key]; line != "" {
			table += line
			continue
		}
		for line := range strings.Lines(old) {
			if strings.HasPrefix(line, key) {
				table += line
			}
		}
	}
	return os.WriteFile(file, []byte(before+tableBegins+table+tableEnds+after), 0o644)
}
