// Package format writes data for people and for programs: as a table, JSON or YAML.
package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Output is how data and errors are written. It is the value of a flag.
type Output string

// The outputs. YAML is made from the JSON, so that both have the same names.
const (
	Table Output = "table"
	JSON  Output = "json"
	YAML  Output = "yaml"
)

// String, Set and Type implement pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type names the flag's value.
func (o *Output) Type() string { return "format" }

// Set takes one of the outputs.
func (o *Output) Set(text string) error {
	if !slices.Contains([]Output{Table, JSON, YAML}, Output(text)) {
		return fmt.Errorf("known formats are table, json and yaml")
	}
	*o = Output(text)
	return nil
}

// Write encodes data as JSON or YAML. Nothing in it can steer a terminal.
func (o Output) Write(w io.Writer, data any) error {
	text, err := encode(data, "  ")
	if err == nil && o == YAML {
		text = toYAML(text)
	} else {
		text = escape(text, false)
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// WriteLine writes one document of several: JSON on one line, YAML after "---".
func (o Output) WriteLine(w io.Writer, data any) error {
	if o == YAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return o.Write(w, data)
	}
	text, err := encode(data, "")
	if err == nil {
		_, err = w.Write(escape(text, false))
	}
	return err
}

// encode is json.MarshalIndent without the escapes that HTML needs.
func encode(data any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(data)
	return b.Bytes(), err
}

// toYAML writes JSON as YAML. Text that does not print stays JSON, which is YAML
// too, since there it can be escaped.
func toYAML(text []byte) []byte {
	written, err := yaml.JSONToYAML(text)
	if err != nil || !Printable(strings.ReplaceAll(string(written), "\n", "")) {
		return escape(text, true)
	}
	return written
}

// Row writes the cells of one line of a table.
func Row(w io.Writer, cells ...string) {
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// When shows an instant, to the second, in UTC: operators compare hosts.
func When(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Exact shows an instant in UTC as precisely as it is.
func Exact(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Count is a number of things: "1 instance", "2 instances".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine joins what errors.Join puts on lines of their own.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
