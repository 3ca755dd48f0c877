package format

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

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

// nameWidth is how wide a name may be in a table: one long name must not make
// every line as wide.
const nameWidth = 48

// Name is Show for a name in a table, cut where it is very long.
func Name(text string) string { return Cut(Show(text), nameWidth) }

// Cut shortens text to so many columns of a terminal.
func Cut(text string, width int) string { return runewidth.Truncate(text, max(0, width), "…") }

// Clean returns a message in which whatever does not print is escaped. Line
// breaks and tabs are escaped too: a message is one line.
func Clean(text string) string {
	if Printable(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if strconv.IsPrint(r) && !(r == utf8.RuneError && n == 1) {
			b.WriteString(text[:n])
		} else {
			quoted := strconv.Quote(text[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[n:]
	}
	return b.String()
}

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
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		case yaml:
			b = fmt.Appendf(b, `\U%08x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
		text = text[n:]
	}
	return b
}
