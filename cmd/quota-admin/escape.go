package main

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Names, reasons and problems come from etcd, where anybody with a role may
// have written them. Shown as they are, control characters could move the
// cursor, recolour the screen or forge lines.

// show returns text as a table cell: as it is where every character prints,
// else quoted as in Go. Text that begins with a quote is quoted too, so that
// the two cannot be confused. An empty text is a dash, to keep columns apart.
func show(text string) string {
	if text == "" {
		return "-"
	}
	if printable(text) && text[0] != '"' && strings.TrimSpace(text) == text {
		return text
	}
	return strconv.Quote(text)
}

// clean returns a message in which whatever does not print is escaped. Line
// breaks and tabs are escaped too: a message is one line.
func clean(text string) string {
	if printable(text) {
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

// printable reports whether every character is one that strconv.Quote would
// leave alone.
func printable(text string) bool {
	if !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// cleanJSON escapes, in encoded JSON, what encoding/json leaves as it is and a
// terminal would obey: the C1 controls, deletion, marks that turn the text's direction. Outside
// of strings JSON has none of these.
func cleanJSON(text []byte) []byte {
	var b []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' || strconv.IsPrint(r):
			b = append(b, text[i:i+n]...)
		case r <= 0xffff:
			b = append(b, `\u`...)
			b = append(b, hex4(r)...)
		default:
			// Beyond 16 bits JSON takes two surrogates.
			r -= 0x10000
			b = append(b, `\u`+hex4(0xd800+r>>10)+`\u`+hex4(0xdc00+r&0x3ff)...)
		}
		i += n
	}
	return b
}

// hex4 returns r as four hexadecimal digits.
func hex4(r rune) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", 4-len(s)) + s
}
