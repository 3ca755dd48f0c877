package quota

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// parser reads a text of limits from left to right; at is the next byte. Its
// methods leave at behind what they have read.
type parser struct {
	text string
	at   int
}

func newParser(text string) (*parser, error) {
	if len(text) > maxTextBytes {
		return nil, &SyntaxError{Text: shorten(text), Offset: 0,
			Problem: fmt.Sprintf("the text has %d bytes, more than the most, %d", len(text), maxTextBytes), Hint: hintForm}
	}
	return &parser{text: text}, nil
}

func (p *parser) done() bool { return p.at >= len(p.text) }

func (p *parser) blanks() {
	for !p.done() && isBlank(p.text[p.at]) {
		p.at++
	}
}

// isBlank counts the end of a line too: a text may come from a file.
func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *parser) rune() string {
	_, n := utf8.DecodeRuneInString(p.text[p.at:])
	return p.text[p.at : p.at+n]
}

func (p *parser) fail(offset int, problem, hint string) *SyntaxError {
	return &SyntaxError{Text: p.text, Offset: offset, Problem: problem, Hint: hint}
}

func (p *parser) limit() (Limit, error) {
	permits, err := p.permits()
	if err != nil {
		return Limit{}, err
	}
	p.blanks()
	switch {
	case p.done():
		return Limit{}, p.fail(p.at, "the window is missing", hintForm)
	case p.text[p.at] != '/':
		return Limit{}, p.fail(p.at, fmt.Sprintf("%q is neither a digit nor the \"/\" before the window", p.rune()), "write permits as a whole number, as in 10000000/s")
	}
	p.at++
	p.blanks()
	window, err := p.window()
	return Limit{Permits: permits, Window: window}, err
}

// digits reads a whole number up to most; underscores may part its digits.
func (p *parser) digits(most int64) (n int64, over bool) {
	last := byte('_')
	for ; !p.done(); p.at++ {
		c := p.text[p.at]
		switch {
		case isDigit(c):
			if n = n*10 + int64(c-'0'); n > most {
				n, over = most, true
			}
		case c != '_' || last == '_':
			return n, over
		case p.at+1 >= len(p.text) || !isDigit(p.text[p.at+1]):
			return n, over
		}
		last = c
	}
	return n, over
}

func (p *parser) permits() (int64, error) {
	start := p.at
	switch {
	case p.done() && strings.TrimSpace(p.text) == "":
		return 0, p.fail(0, "the text is empty", hintForm)
	case p.done():
		return 0, p.fail(start, "a limit is missing after the comma", hintForm)
	case p.text[start] == '-' || p.text[start] == '+':
		return 0, p.fail(start, "permits have no sign", fmt.Sprintf("write a whole number from 0 (nothing is admitted) to %d", MaxPermits))
	case !isDigit(p.text[start]):
		return 0, p.fail(start, fmt.Sprintf("%q is no number of permits", p.rune()), hintForm)
	}
	n, over := p.digits(MaxPermits)
	if over {
		return 0, p.fail(start, fmt.Sprintf("%s permits are more than the most, %d", p.text[start:p.at], MaxPermits), "lower the number, or shorten the window with it")
	}
	return n, nil
}

func (p *parser) window() (time.Duration, error) {
	start := p.at
	count, over := int64(1), false
	if !p.done() && isDigit(p.text[p.at]) {
		count, over = p.digits(int64(MaxWindow/time.Millisecond) + 1)
	}
	unitAt := p.at
	for !p.done() && p.text[p.at] != ',' && !isBlank(p.text[p.at]) {
		p.at++
	}
	name := p.text[unitAt:p.at]
	unit, ok := unitOf(name)
	if !ok {
		return 0, p.noUnit(unitAt, name)
	}
	window := time.Duration(count) * unit
	switch {
	case over || window > MaxWindow:
		return 0, p.fail(start, fmt.Sprintf("the window %s is longer than the longest, %s", p.text[start:p.at], windowText(MaxWindow)), "divide permits and window by the same number")
	case window < MinWindow:
		return 0, p.fail(start, fmt.Sprintf("the window %s is shorter than the shortest, %s", p.text[start:p.at], windowText(MinWindow)), "multiply permits and window by the same number")
	}
	return window, nil
}

func unitOf(name string) (unit time.Duration, ok bool) {
	switch name {
	case "ms":
		return time.Millisecond, true
	case "s":
		return time.Second, true
	case "m":
		return time.Minute, true
	}
	return 0, false
}

// noUnit says what is wrong where a window's unit should be.
func (p *parser) noUnit(at int, name string) *SyntaxError {
	switch {
	case name == "":
		return p.fail(at, "the window has no unit", hintUnit)
	case name[0] == '-' || name[0] == '+':
		return p.fail(at, "a window has no sign", hintUnit)
	case name[0] == '.':
		return p.fail(at, "a window is a whole number of its unit", "use a smaller unit, as in 5/1500ms")
	}
	return p.fail(at, fmt.Sprintf("%q is no unit of a window", name), hintUnit)
}
