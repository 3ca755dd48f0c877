package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// format is how data and errors are written.
type format string

// The formats. YAML is made from the JSON, so that both have the same names.
const (
	formatTable format = "table"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

var formats = []format{formatTable, formatJSON, formatYAML}

// String, Set and Type make a format the value of a flag.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(text string) error {
	if !slices.Contains(formats, format(text)) {
		return fmt.Errorf("known formats are table, json and yaml")
	}
	*f = format(text)
	return nil
}

// formatOf finds the format in arguments that the parser gave up on.
func formatOf(args []string, otherwise format) format {
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
		if slices.Contains(formats, format(value)) {
			found = format(value)
		}
	}
	return found
}

// emit writes data to stdout: as JSON or YAML, or by table.
func (a *app) emit(data any, table func(io.Writer)) error {
	if a.format != formatTable {
		return a.format.write(a.stdout, data)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 3, ' ', 0)
	table(w)
	return w.Flush()
}

// note writes a message to stderr. Programs that read JSON or YAML are spared.
func (a *app) note(format string, args ...any) {
	if a.format == formatTable {
		fmt.Fprintln(a.stderr, clean(fmt.Sprintf(format, args...)))
	}
}

// write encodes data as JSON or YAML.
func (f format) write(w io.Writer, data any) error {
	text, err := encodeJSON(data)
	if err == nil && f == formatYAML {
		text, err = yamlFromJSON(text)
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// encodeJSON is json.MarshalIndent without the escapes that HTML needs, and with
// those that terminals need.
func encodeJSON(data any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(data)
	return cleanJSON(b.Bytes()), err
}

// row writes the cells of one line of a table.
func row(w io.Writer, cells ...string) {
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// when shows an instant, to the second, in UTC: operators compare hosts.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}
