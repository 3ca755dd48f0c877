package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/load/picture"
)

// tableRows is how many windows the table shows at most. Of more it shows the
// first and last ones, and each that is over its limit.
const tableRows = 60

// Columns of the table that are left out where they have nothing to say.
const (
	columnWindow  = 1
	columnArrived = 5
)

var tableHead = []string{"start", "window", "limit", "offered", "issued", "arrived", "instances", ""}

// writeTable writes one row per window.
func writeTable(w io.Writer, windows []load.Window, fleet int) {
	if len(windows) == 0 {
		return
	}
	rows := [][]string{tableHead}
	left := 0
	for i := range windows {
		if !shown(i, len(windows)) && !windows[i].Over() && !windows[i].ArrivedOver() {
			left++
			continue
		}
		if left > 0 {
			rows = append(rows, leftOut(left))
			left = 0
		}
		rows = append(rows, tableRow(&windows[i], fleet))
	}
	if left > 0 {
		rows = append(rows, leftOut(left))
	}
	if windows[0].Arrived == nil {
		without(rows, columnArrived)
	}
	if windows[0].Length == "" {
		without(rows, columnWindow)
	}
	align(w, rows)
}

func without(rows [][]string, column int) {
	for i, row := range rows {
		rows[i] = slices.Delete(slices.Clone(row), column, column+1)
	}
}

func shown(i, n int) bool {
	return n <= tableRows || i < tableRows/2 || i >= n-tableRows/2
}

func leftOut(n int) []string {
	return []string{"...", "", "", "", "", "", "", fmt.Sprintf("%d more, none over its limit", n)}
}

func tableRow(w *load.Window, fleet int) []string {
	note := ""
	switch {
	case w.Over():
		note = "OVER by " + thousands(w.Issued-w.Doubtful-w.Most())
	case w.ArrivedOver():
		note = thousands(*w.Arrived-w.Late-w.Limit) + " too many arrived"
	case w.Doubtful > 0:
		note = thousands(w.Doubtful) + " of them doubtful"
	case w.Settling():
		note = "limit changes"
	case w.Instances < fleet && w.Whole():
		note = "not all active"
	case w.Instances < fleet:
		note = "settling"
	case !w.Whole():
		note = "not measured"
	}
	arrived := ""
	if w.Arrived != nil {
		arrived = thousands(*w.Arrived)
	}
	return []string{clockText(w.Start), w.Length, thousands(w.Limit), thousands(w.Offered),
		thousands(w.Issued), arrived, strconv.Itoa(w.Instances), note}
}

// clockText shows the fraction of a second only where there is one.
func clockText(t time.Time) string { return t.UTC().Format("15:04:05.999") }

// align writes columns to the right, the first and the last to the left.
func align(w io.Writer, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			switch i {
			case 0:
				fmt.Fprintf(&line, "%-*s", widths[i], cell)
			case len(row) - 1:
				line.WriteString("  " + cell)
			default:
				fmt.Fprintf(&line, "  %*s", widths[i], cell)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// thousands writes a number with commas.
func thousands(n int64) string { return picture.Thousands(n) }
