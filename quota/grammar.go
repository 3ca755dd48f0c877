package quota

import (
	"cmp"
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

// maxTextBytes bounds a text of limits: several times the longest sensible one.
const maxTextBytes = 1024

const (
	hintForm = `write permits per window, as in "300000/s" or "500/2s,10000/1m"`
	hintUnit = "use ms, s or m (minute), as in 5/s, 5/250ms or 5/1m"
)

// ParseLimits reads limits as operators write them:
//
//	limits = limit *( "," limit )
//	limit  = permits "/" window
//	window = [ count ] ( "ms" | "s" | "m" )
//
// permits is a whole number from 0 to MaxPermits, in which underscores may part
// the digits; a window lasts from MinWindow to MaxWindow. Blanks around the
// parts are ignored. The result holds 1 to 8 limits, no two with the
// same window, and is sorted, shortest window first. An error is a *SyntaxError.
func ParseLimits(text string) ([]Limit, error) {
	p, err := newParser(text)
	if err != nil {
		return nil, err
	}
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
		if len(limits) == maxLimits {
			return nil, p.fail(p.at, fmt.Sprintf("there are more than %d limits", maxLimits), "leave out those that the others imply")
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

// String returns the limit as operators write it, with the window in the
// largest unit that divides it: "300000/s", "500/2s", "10000/1m", "7/1500ms".
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
	slices.SortFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Window, b.Window) })
}
