package main

import (
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// formatOf finds the format in arguments that the parser gave up on.
func formatOf(args []string, otherwise format.Output) format.Output {
	found := otherwise
	for i, arg := range args {
		value, ok := strings.CutPrefix(arg, "--output=")
		switch {
		case ok:
		case arg == "--":
			return found
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			value = args[i+1]
		case strings.HasPrefix(arg, "-o"):
			value = strings.TrimPrefix(arg[2:], "=")
		}
		if new(format.Output).Set(value) == nil {
			found = format.Output(value)
		}
	}
	return found
}

// emit writes data to stdout: as JSON or YAML, or by table.
func (a *app) emit(data any, table func(io.Writer)) error {
	if a.format != format.Table {
		return a.format.Write(a.stdout, data)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 3, ' ', 0)
	table(w)
	return w.Flush()
}

// note writes a message to stderr. Programs that read JSON or YAML are spared.
func (a *app) note(text string, args ...any) {
	if a.format == format.Table {
		fmt.Fprintln(a.stderr, format.Clean(fmt.Sprintf(text, args...)))
	}
}
