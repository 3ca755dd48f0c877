package quota

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a limit.
const (
	// MaxPermits is the largest number of permits in one window (10^12). An int64 has
	// room to add two such totals, and to multiply one by 10^6.
	MaxPermits = int64(1_000_000_000_000)
	MinWindow  = 100 * time.Millisecond // the shortest window
	MaxWindow  = time.Minute            // the longest; a limit of a longer one is a budget
	maxLimits  = 8                      // in one policy
)

// Windows of budgets: limits of more than MaxWindow. Those of a day and a month are the
// calendar's; there are none between the two.
const (
	day   = 24 * time.Hour
	month = 31 * day
)

// Limit is a number of permits for each window of one length. Within a policy
// the window length is the limit's identity: no two limits share one.
//
// Windows are aligned to the Unix epoch: window k of length w is
// [k*w, (k+1)*w). Days and months are those of Policy.Zone. Those of a budget may begin later:
// Phase.
type Limit struct {
	// Permits is their number per window, 0 to MaxPermits; 0 admits nothing. A budget has at
	// least 1.
	Permits int64
	// Window is MinWindow to MaxWindow, in whole milliseconds. A budget's is above MaxWindow,
	// in whole seconds up to a day, or 31 days, which stand for a month.
	Window time.Duration
	// Phase is how much later a budget's windows begin: at 17 minutes past each hour, or a day at
	// noon. In whole seconds, less than Window; 0 for a month, and for a limit that is no budget.
	Phase time.Duration
	// Sliding has a budget of up to a day count in no windows: whenever one as long begins, it holds
	// at most Permits. It has no Phase.
	Sliding bool
	// InFlight has the limit bound the calls that are under way at once: at most Permits, at least
	// 1. Window is then the hold, the longest time of a call, in whole seconds from 4 s to a day. It
	// is the only limit of its policy. See consumer.Permit.Done.
	InFlight bool
}

// Window names one window: the k-th of length Length since the Unix epoch.
type Window struct {
	Length time.Duration
	Index  int64
}

// WindowAt returns the window of the given length that contains the wall-clock
// instant wall, in nanoseconds since the Unix epoch.
func WindowAt(length time.Duration, wall int64) Window {
	k := wall / int64(length)
	if wall%int64(length) < 0 {
		k-- // before 1970: round down, not towards zero
	}
	return Window{Length: length, Index: k}
}

// Start returns the window's first instant, in nanoseconds since the Unix epoch,
// held within int64.
func (w Window) Start() int64 {
	switch start := w.Index * int64(w.Length); {
	case w.Length == 0 || start/int64(w.Length) == w.Index:
		return start
	case w.Index < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// End returns the first instant after the window, in nanoseconds since the Unix
// epoch, held within int64.
func (w Window) End() int64 {
	start := w.Start()
	return start + min(int64(w.Length), math.MaxInt64-max(0, start))
}

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
	hintUnit = "use ms, s, m (minute), h, d or mo (month), as in 5/s, 5/250ms or 5/15m"
	// hintCalendar is for windows between a day and a month, and beyond.
	hintCalendar = "use d or mo, a day or a month of the policy's zone, or a shorter window"
)

// ParseLimits reads limits as operators write them:
//
//	limits = limit *( "," limit )
//	limit  = permits "/" window [ "sliding" ]
//	window = [ count ] ( "ms" | "s" | "m" | "h" | "d" | "mo" ) [ "@" phase ]
//	phase  = hours ":" minutes [ ":" seconds ] | count ( "s" | "m" | "h" )
//
// or one of the calls that are under way at once, which has no other beside it in a policy:
//
//	limits = permits "inflight" "hold" "=" count ( "s" | "m" | "h" | "d" )
//
// permits is a whole number from 0 to MaxPermits, in which underscores may part
// the digits; a window lasts from MinWindow to a day, or is "mo", a month. Limits of
// more than MaxWindow are of whole seconds; a day and a
// month are the calendar's. The windows of these begin at 0:00 or, up to a day, as much later
// as the phase says: 5000/h@17m, 10000/d@12:00. One that slides, 5000/h sliding, counts in no
// windows: see Limit.Sliding. Blanks around the parts are ignored. The result holds 1 to
// 8 limits, no two with the same window, and is sorted, shortest window first. An
// error is a *SyntaxError.
func ParseLimits(text string) ([]Limit, error) {
	switch {
	case len(text) > maxTextBytes:
		return nil, &SyntaxError{shorten(text), 0, fmt.Sprintf("the text has %d bytes, more than the most, %d", len(text), maxTextBytes), hintForm}
	case strings.TrimSpace(text) == "":
		return nil, &SyntaxError{text, 0, "the text is empty", hintForm}
	}
	var limits []Limit
	offset := 0
	for part := range strings.SplitSeq(text, ",") {
		if len(limits) == maxLimits {
			return nil, &SyntaxError{text, offset, fmt.Sprintf("there are more than %d limits", maxLimits), "leave out those that the others imply"}
		}
		l, wrong := parseLimit(part, limits)
		if wrong != nil {
			if hint := hintCommas(text[offset:]); hint != "" {
				wrong.Hint = hint
			}
			wrong.Text, wrong.Offset = text, wrong.Offset+offset
			return nil, wrong
		}
		limits = append(limits, l)
		offset += len(part) + 1
	}
	sortLimits(limits)
	return limits, nil
}

// thousands matches a limit with commas between the digits of its number.
var thousands = regexp.MustCompile(`^\s*(\d{1,3}(?:,\d{3})+)\s*/([^,]*)`)

// hintCommas returns how to write a number with commas between its digits, or "".
func hintCommas(text string) string {
	found := thousands.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	if meant := meantLimit(strings.ReplaceAll(found[1], ",", ""), found[2]); meant != "" {
		return "write " + meant + "; a comma separates two limits"
	}
	return "write the number without commas; a comma separates two limits"
}

// What may follow a number in place of the slash: a power of ten, or the window with other
// words around it.
var (
	powerForm = regexp.MustCompile(`^(?:[eE]\+?(\d{1,2})|([kKMG]))\s*/(.*)$`)
	perForm   = regexp.MustCompile(`^(?:[rqt]?p|per\s)?\s*(\d*)\s*([a-z]+)$`)
)

// powers are the letters of powerForm as numbers of zeros.
var powers = map[string]int{"k": 3, "K": 3, "M": 6, "G": 9}

// unitWords are the units of perForm that have other names in limits.
var unitWords = map[string]string{
	"sec": "s", "second": "s", "seconds": "s", "min": "m", "minute": "m", "minutes": "m",
	"hour": "h", "hours": "h", "day": "d", "month": "mo",
}

// hintAfter returns how to write a limit that has rest where the slash is expected.
func hintAfter(permits, rest string) string {
	rest = strings.TrimSpace(rest)
	if found := powerForm.FindStringSubmatch(rest); found != nil {
		zeros := powers[found[2]]
		if found[1] != "" {
			zeros = int(number(found[1]))
		}
		if meant := meantLimit(permits+strings.Repeat("0", zeros), found[3]); meant != "" {
			return "write the number out: " + meant
		}
	} else if found := perForm.FindStringSubmatch(rest); found != nil {
		if meant := meantLimit(permits, found[1]+cmp.Or(unitWords[found[2]], found[2])); meant != "" {
			return `put "/" between permits and window: ` + meant
		}
	}
	return hintForm
}

// meantLimit returns the limit of permits in a window as it is to be written, "" if
// there is no such limit.
func meantLimit(permits, window string) string {
	l, wrong := parseLimit(permits+"/"+window, nil)
	if wrong != nil {
		return ""
	}
	return l.String()
}

// limitForm matches every text, so that each of its groups has a place: permits,
// slash, count, unit, phase with its @, and the rest.
var limitForm = regexp.MustCompile(`(?s)^\s*((?:\d+(?:_\d+)*)?)\s*(/?)\s*((?:\d+(?:_\d+)*)?)([^\s@]*)\s*((?:@\s*\S*)?)\s*(.*)$`)

var units = map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": day, "mo": month}

// parseLimit reads one limit, whose window none of the others has. An error's
// offset is within the text.
func parseLimit(text string, others []Limit) (l Limit, _ *SyntaxError) {
	if l, wrong, ok := parseInFlight(text); ok {
		if wrong == nil && len(others) > 0 {
			wrong = &SyntaxError{Problem: "a limit in flight has no other beside it", Hint: hintAlone}
		}
		return l, wrong
	}
	at := limitForm.FindStringSubmatchIndex(text)
	permits, slash, count, name, window := text[at[2]:at[3]], text[at[4]:at[5]], text[at[6]:at[7]], text[at[8]:at[9]], text[at[6]:at[9]]
	fail := func(group int, hint, problem string, args ...any) (Limit, *SyntaxError) {
		return l, &SyntaxError{Offset: at[2*group], Problem: fmt.Sprintf(problem, args...), Hint: hint}
	}
	next := func(group int) string { // the character there, "" at the end
		_, n := utf8.DecodeRuneInString(text[at[2*group]:])
		return text[at[2*group]:][:n]
	}
	unit, known := units[name]
	n := min(number(cmp.Or(count, "1")), int64(month/time.Millisecond)+1) // the product does not overflow
	l = Limit{Permits: number(permits), Window: time.Duration(min(n, int64(month/max(unit, 1))+1)) * unit}
	switch {
	case permits == "" && next(1) == "":
		return fail(1, hintForm, "a limit is missing")
	case permits == "" && strings.Contains("-+", next(1)):
		return fail(1, fmt.Sprintf("write a whole number from 0 (nothing is admitted) to %d", MaxPermits), "permits have no sign")
	case permits == "":
		return fail(1, hintForm, "%q is no number of permits", next(1))
	case l.Permits > MaxPermits:
		return fail(1, "lower the number, or shorten the window with it", "%s permits are more than the most, %d", permits, MaxPermits)
	case slash == "" && next(2) == "":
		return fail(2, hintForm, "the window is missing")
	case slash == "" && next(2) == ".":
		return fail(2, "use a longer window, as in 30/m for 0.5/s", "permits are a whole number")
	case slash == "":
		return fail(2, hintAfter(permits, text[at[4]:]), `%q is neither a digit nor the "/" before the window`, next(2))
	case name == "":
		return fail(4, hintUnit, "the window has no unit")
	case strings.Contains("-+", name[:1]):
		return fail(4, hintUnit, "a window has no sign")
	case name[0] == '.':
		return fail(4, "use a smaller unit, as in 5/1500ms", "a window is a whole number of its unit")
	case !known:
		return fail(4, hintUnit, "%q is no unit of a window", name)
	case l.Window > day && (l.Window != month || name != "mo"):
		return fail(3, hintCalendar, "the window %s is longer than a day, and no month", window)
	case l.Permits == 0 && l.Window > MaxWindow:
		return fail(1, "write 0/s to admit nothing", "a limit of %s needs at least one permit", window)
	case oddBudget(l.Window):
		return fail(3, "use whole seconds", "the window %s is longer than a minute, and has a part of a second", window)
	case l.Window < MinWindow:
		return fail(3, "multiply permits and window by the same number", "the window %s is shorter than the shortest, %s", window, windowText(MinWindow))
	case len(others) > 0 && others[0].InFlight:
		return fail(1, "set it for a provider of its own, and take from both by TakeAll", "a limit in flight has no other beside it")
	case slices.ContainsFunc(others, func(o Limit) bool { return o.Window == l.Window }):
		return fail(1, "keep the one that is meant: a window length names a limit", "there are two limits with a window of %s", windowText(l.Window))
	}
	var problem, hint string
	if l.Phase, problem, hint = readPhase(text[at[10]:at[11]], l.Window); problem != "" {
		return fail(5, hint, "%s", problem)
	}
	word := strings.TrimSpace(text[at[12]:at[13]])
	if l.Sliding = word == wordSliding; l.Sliding {
		if problem, hint := wrongSliding(&l); problem != "" {
			return fail(6, hint, "%s", problem)
		}
	} else if first, _, _ := strings.Cut(word, " "); strings.HasPrefix(first, wordSliding[:2]) && first != wordSliding {
		return fail(6, "did you mean "+wordSliding+"?", "%q does not belong here", shorten(first))
	} else if word != "" {
		return fail(6, `separate limits by ","`, "%q does not belong here", next(6))
	}
	return l, nil
}

// number reads digits; the largest number stands for any that is larger.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(strings.ReplaceAll(digits, "_", ""), 10, 64)
	return n
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
// largest unit that divides it: "300000/s", "500/2s", "10000/1m", "7/1500ms", "5000/h@17m",
// "200 inflight hold=10m".
func (l Limit) String() string {
	if l.InFlight {
		return l.inFlightText()
	}
	w := windowText(l.Window)
	if w == "1s" || l.Window >= time.Hour && w[:1] == "1" && (w[1] == 'h' || w[1] == 'd' || w[1] == 'm') {
		w = w[1:]
	}
	return strconv.FormatInt(l.Permits, 10) + "/" + w + l.phaseText() + l.slidingText()
}

// windowText returns a window length in the largest unit that fits.
func windowText(w time.Duration) string {
	for _, unit := range []string{"mo", "d", "h", "m", "s", "ms"} {
		if w != 0 && w%units[unit] == 0 {
			return strconv.FormatInt(int64(w/units[unit]), 10) + unit
		}
	}
	return w.String()
}

// oddBudget reports whether a window above MaxWindow is not one that a budget can have.
func oddBudget(w time.Duration) bool {
	return w > MaxWindow && (w%time.Second != 0 || w > day && w != month)
}

func sortLimits(limits []Limit) {
	slices.SortFunc(limits, func(a, b Limit) int { return cmp.Compare(a.Window, b.Window) })
}

// ParseGuard reads a guard as people write it, such as "20ms". Of "auto", which earlier versions had,
// the error says what to write. The duration is not checked against any bound; Policy.Validate does
// that.
func ParseGuard(s string) (time.Duration, error) {
	fixed, auto, err := readGuard(s)
	if auto {
		return 0, fmt.Errorf("%q went with an earlier version: write the policy's clock_error and the time of a call, as in %v for a clock_error of %v and %v; where clocks are better, lower both",
			autoGuard(fixed), DefaultClockError+fixed, DefaultClockError, fixed)
	}
	return fixed, err
}

// readGuard is ParseGuard, and takes "auto" and "auto+20ms" too: auto, and 20 ms.
func readGuard(s string) (fixed time.Duration, auto bool, err error) {
	rest, auto := strings.CutPrefix(s, guardAuto)
	if auto && rest == "" {
		return 0, true, nil
	}
	if auto && rest[0] != '+' {
		rest = "" // which is no duration
	}
	if fixed, err = time.ParseDuration(rest); err != nil {
		return 0, false, fmt.Errorf("%q is no guard: write a duration like %q", shorten(s), "20ms")
	}
	return fixed, auto, nil
}

// guardAuto is a guard of earlier versions, which followed the measured error of the clock.
const guardAuto = "auto"

// autoGuard writes such a guard as readGuard reads it.
func autoGuard(fixed time.Duration) string {
	return strings.TrimSuffix(guardAuto+"+"+fixed.String(), "+0s")
}
