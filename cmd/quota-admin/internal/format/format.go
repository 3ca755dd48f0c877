// Package format writes data for people and for programs: as a table, JSON or YAML.
package format

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
	"sigs.k8s.io/yaml"
)

// Output is how data and errors are written.
type Output string

// The outputs. YAML is made from the JSON, so that both have the same names.
const (
	Table Output = "table"
	JSON  Output = "json"
	YAML  Output = "yaml"
)

// Set takes one of the outputs.
func (o *Output) Set(text string) error {
	if !slices.Contains([]Output{Table, JSON, YAML}, Output(text)) {
		return fmt.Errorf("known formats are table, wide, json and yaml")
	}
	*o = Output(text)
	return nil
}

// Write encodes data as JSON or YAML. Nothing in it can steer a terminal.
func (o Output) Write(w io.Writer, data any) error { return o.write(w, data, "  ") }

// WriteLine writes one document of several: JSON on one line, YAML after "---".
func (o Output) WriteLine(w io.Writer, data any) error {
	if o == YAML {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
	}
	return o.write(w, data, "")
}

func (o Output) write(w io.Writer, data any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(data); err != nil {
		return err
	}
	text := escape(b.Bytes(), o == YAML)
	if o == YAML && !bytes.ContainsRune(b.Bytes(), '\u0085') { // a line break of YAML, which the library loses
		// Text that does not print stays JSON, which is YAML too: there it can be escaped.
		if y, err := yaml.JSONToYAML(b.Bytes()); err == nil && Printable(strings.ReplaceAll(string(y), "\n", "")) {
			text = y
		}
	}
	_, err := w.Write(text)
	return err
}

// Row writes the cells of one line of a table.
func Row(w io.Writer, cells ...string) {
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}

// Natural compares names as people count: worker-9 comes before worker-10.
func Natural(a, b string) int {
	for x, y := a, b; x != "" && y != ""; {
		m, n := digits(x), digits(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if c := cmp.Or(cmp.Compare(len(p), len(q)), cmp.Compare(p, q)); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// digits returns how many digits a text begins with.
func digits(text string) int { return len(text) - len(strings.TrimLeft(text, "0123456789")) }

// When shows an instant, to the second, in UTC: operators compare hosts.
func When(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Exact shows an instant in UTC as precisely as it is.
func Exact(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Latest shows an instant that is the latest one for something, in UTC and to the second: rounded up.
func Latest(t time.Time) string { return When(t.Add(time.Second - 1)) }

// Count is a number of things: "1 instance", "2 instances".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// OneLine joins what errors.Join puts on lines of their own; nil is "".
func OneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// Names, reasons and problems come from etcd, where anybody with a role may
// have written them. Shown as they are, control characters could move the
// cursor, recolour the screen or forge lines.

// Show returns text as a table cell: as it is where every character prints,
// else quoted as in Go. Text that begins with a quote is quoted too, so that
// the two cannot be confused. An empty text is a dash, to keep columns apart.
func Show(text string) string {
	if text == "" {
		return "-"
	}
	if Printable(text) && text[0] != '"' && strings.TrimSpace(text) == text {
		return text
	}
	return strconv.Quote(text)
}

const nameWidth = 48

// Name is Show for a name in a table: one long name must not make every line as wide.
func Name(text string) string { return runewidth.Truncate(Show(text), nameWidth, "…") }

// Clean returns a message in which whatever does not print is escaped. Line
// breaks and tabs are escaped too: a message is one line.
func Clean(text string) string {
	quoted := strconv.Quote(text)
	return printing.Replace(quoted[1 : len(quoted)-1])
}

// printing takes back what strconv.Quote does to characters that print.
var printing = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// Printable reports whether every character is one that strconv.Quote would
// leave alone.
func Printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) })
}

// escape escapes, in encoded JSON, what encoding/json leaves as it is and a
// terminal would obey: the C1 controls, deletion, marks that turn the text's
// direction. Outside of strings JSON has none of these. Beyond 16 bits JSON takes
// two surrogates, and YAML one longer escape.
func escape(text []byte, yaml bool) []byte {
	var b []byte
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || strconv.IsPrint(r):
			b = append(b, text[:n]...)
		case yaml && r > 0xffff:
			b = fmt.Appendf(b, `\U%08x`, r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
		text = text[n:]
	}
	return b
}
