package quota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// SyntaxError says what is wrong with a text of limits, and where.
type SyntaxError struct {
	Text    string // as given
	Offset  int    // of the byte where the problem begins
	Problem string // what is wrong, naming the value and the bound
	Hint    string // what to write instead
}

// Error returns problem and hint in one line.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("limits %q: %s; %s", e.Text, e.Problem, e.Hint)
}

// Point returns the text and, on a second line, a caret under the place.
func (e *SyntaxError) Point() string {
	shown := strconv.Quote(e.Text)
	before := strconv.Quote(e.Text[:min(e.Offset, len(e.Text))])
	return shown + "\n" + strings.Repeat(" ", utf8.RuneCountInString(before)-1) + "^"
}

const hintForm = `write permits per window, as in "300000/s" or "500/2s,10000/1m"`

// ParseLimits reads limits as operators write them:
//
//	limits = limit *( "," limit )
//	limit  = permits "/" window
//	window = [ count ] ( "ms" | "s" | "m" )
//
// permits is a whole number from 0 to MaxPermits, in which underscores may part
// the digits; a window lasts from MinWindow to MaxWindow. Blanks around the
// parts are ignored. The result is sorted, shortest window first. An error is a
// *SyntaxError.
func ParseLimits(text string) ([]Limit, error) {
	p := parser{text: text}
	var limits []Limit
	for {
		p.blanks()
		start := p.at
		l, err := p.limit()
		if err != nil {
			return nil, err
		}
		for _, other := range limits {
			if other.Window == l.Window {
				return nil, p.fail(start, fmt.Sprintf("there are two limits with a window of %s", windowText(l.Window)),
					"keep the one that is meant: a window length names a limit")
			}
		}
		limits = append(limits, l)
		p.blanks()
		if p.done() {
			break
		}
		if p.text[p.at] != ',' {
			return nil, p.fail(p.at, fmt.Sprintf("%q does not belong here", p.rune()), `separate limits by ","`)
		}
		p.at++
		if len(limits) == MaxLimits {
			return nil, p.fail(p.at, fmt.Sprintf("there are more than %d limits", MaxLimits), "leave out those that the others imply")
		}
	}
	sortLimits(limits)
	return limits, nil
}

// FormatLimits writes limits so that ParseLimits reads the same again.
func FormatLimits(limits []Limit) string {
	parts := make([]string, len(limits))
	for i, l := range limits {
		parts[i] = l.String()
	}
	return strings.Join(parts, ",")
}

// String returns the limit as operators write it: "300000/s", "500/2s".
func (l Limit) String() string {
	w := windowText(l.Window)
	if w == "1s" {
		w = "s"
	}
	return strconv.FormatInt(l.Permits, 10) + "/" + w
}

// windowText returns a window length in the largest unit that fits.
func windowText(w time.Duration) string {
	switch {
	case w == 0:
		return "0s"
	case w%time.Minute == 0:
		return strconv.FormatInt(int64(w/time.Minute), 10) + "m"
	case w%time.Second == 0:
		return strconv.FormatInt(int64(w/time.Second), 10) + "s"
	case w%time.Millisecond == 0:
		return strconv.FormatInt(int64(w/time.Millisecond), 10) + "ms"
	}
	return w.String()
}

func sortLimits(limits []Limit) {
	slices.SortFunc(limits, func(a, b Limit) int { return int(a.Window/time.Microsecond - b.Window/time.Microsecond) })
}

type parser struct {
	text string
	at   int
}

func (p *parser) done() bool { return p.at >= len(p.text) }

func (p *parser) blanks() {
	for !p.done() && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

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
		case c >= '0' && c <= '9':
			if n = n*10 + int64(c-'0'); n > most {
				n, over = most, true
			}
		case c != '_' || last == '_':
			return n, over
		case p.at+1 >= len(p.text) || p.text[p.at+1] < '0' || p.text[p.at+1] > '9':
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
	case p.text[start] < '0' || p.text[start] > '9':
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
	if !p.done() && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		count, over = p.digits(int64(MaxWindow/time.Millisecond) + 1)
	}
	unitAt := p.at
	for !p.done() && p.text[p.at] != ',' && p.text[p.at] != ' ' && p.text[p.at] != '\t' {
		p.at++
	}
	name := p.text[unitAt:p.at]
	unit, ok := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute}[name]
	if !ok {
		problem := fmt.Sprintf("%q is no unit of a window", name)
		if name == "" {
			problem = "the window has no unit"
		}
		return 0, p.fail(unitAt, problem, "use ms, s or m (minute), as in 5/s, 5/250ms or 5/1m")
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
