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

// writeTable puts the table between its marks in a document, or makes a file of
// it where there is none.
func writeTable(file, table string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		text, err = []byte(tableBegins+tableEnds), nil
	}
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	_, after, okEnd := strings.Cut(rest, tableEnds)
	if !ok || !okEnd {
		return errors.New(file + " has no place for the table")
	}
	return os.WriteFile(file, []byte(before+tableBegins+table+tableEnds+after), 0o644)
}
