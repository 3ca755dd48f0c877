package quota

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// FieldError says which field of a value is not valid, and why.
type FieldError struct {
	Field   string // as in JSON: "settle", "limits[0].permits"
	Value   string // as given; shortened if long
	Problem string // with the bound
	Hint    string // the way out; may be empty
}

// Error returns all of it in one line.
func (e *FieldError) Error() string {
	s := fmt.Sprintf("%s %s: %s", e.Field, e.Value, e.Problem)
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// problems collects field errors, in the order of the fields.
type problems []error

func (e *problems) add(field string, value any, problem, hint string) {
	*e = append(*e, &FieldError{field, shorten(fmt.Sprint(value)), problem, hint})
}

// limits checks a list of limits that is sorted by window.
func (e *problems) limits(field string, limits []Limit) {
	if len(limits) == 0 || len(limits) > maxLimits {
		e.add(field, fmt.Sprintf("(%d of them)", len(limits)), fmt.Sprintf("from 1 to %d limits are needed", maxLimits), hintForm)
	}
	for i := 1; i < len(limits); i++ {
		if limits[i].Window == limits[i-1].Window {
			e.add(field, FormatLimits(limits), "two limits have the same window", "a window length names a limit: keep one")
		}
	}
	for i, l := range limits {
		e.limit(fmt.Sprintf("%s[%d]", field, i), l)
	}
}

func (e *problems) limit(field string, l Limit) {
	if l.Permits < 0 || l.Permits > MaxPermits {
		e.add(field+".permits", l.Permits, fmt.Sprintf("must be from 0 to %d", MaxPermits), "")
	}
	if l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Millisecond != 0 {
		e.add(field+".window", l.Window, fmt.Sprintf("must be whole milliseconds from %v to %v", MinWindow, MaxWindow), "")
	}
}

// text checks what people write.
func (e *problems) text(field, value string, most int) {
	if len(value) > most {
		e.add(field, fmt.Sprintf("(%d bytes)", len(value)), fmt.Sprintf("at most %d bytes", most), "shorten it")
	}
	if !utf8.ValidString(value) {
		e.add(field, strconv.Quote(shorten(value)), "is not valid UTF-8", "")
	}
}

// when checks a time that is set.
func (e *problems) when(field string, t time.Time) {
	if t.Before(earliest) || !t.Before(latest) {
		e.add(field, t.UTC().Format(time.RFC3339Nano), "must lie in the years 1970 to 2199", "write it as in 2027-01-01T00:00:00Z")
	}
}

// oneOf checks a value that has a name.
func oneOf[T ~string](e *problems, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	e.add(field, strconv.Quote(shorten(string(value))), "this version knows "+strings.Join(names, ", "), "")
}

// shorten bounds what an error quotes of a value.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
