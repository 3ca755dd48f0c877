package quota

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a policy's zone means the same on every host
	"unicode"
	"unicode/utf8"
)

// Bounds of a policy's parts.
const (
	maxChanges       = 16   // announced changes in Policy.Next
	maxRequires      = 16   // features in Policy.Requires
	maxNameBytes     = 128  // one feature
	maxAuthorBytes   = 256  // Policy.Author
	maxReasonBytes   = 1024 // Policy.Reason
	maxProviderBytes = 200  // a provider's name
	minBackoffMax    = 100 * time.Millisecond
	maxBackoffMax    = time.Hour
)

// Every time must lie from earliest to before latest: far enough from the ends
// of an int64 of nanoseconds that sums with settle times and windows fit.
var (
	earliest = time.Unix(0, 0)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
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

// Validate returns all that is wrong with the policy, as joined *FieldErrors,
// or nil. Zero fields stand for their defaults, and the order of limits does
// not matter.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var errs problems
	errs.limits("limits", p.Limits, month)
	for i, c := range p.Next {
		errs.limits(fmt.Sprintf("next[%d].limits", i), c.Limits, MaxWindow)
	}
	p.checkKeys(&errs)
	p.checkZone(&errs)
	for _, c := range p.choices() {
		errs.add(!slices.Contains(c.known, c.value), c.field, strconv.Quote(shorten(c.value)), "", "this version knows %s", strings.Join(c.known, ", "))
	}
	p.checkShape(&errs)
	p.checkTiming(&errs)
	p.checkGuard(&errs)
	p.checkSliding(&errs)
	p.checkInFlight(&errs)
	p.checkDates(&errs)
	within(&errs, "max_step", p.MaxStep, 1, float64(MaxPermits), fmt.Sprintf("0 means the default, %v", defaultMaxStep))
	within(&errs, "backoff_max", p.BackoffMax, minBackoffMax, maxBackoffMax, fmt.Sprintf("0 stands for %v", defaultBackoffMax))
	errs.add(len(p.Requires) > maxRequires, "requires", len(p.Requires), "", "at most %d features", maxRequires)
	for i, r := range p.Requires {
		field := fmt.Sprintf("requires[%d]", i)
		errs.text(field, r, maxNameBytes)
		errs.add(r == "", field, strconv.Quote(r), "name it, or leave it out", "a feature has a name")
	}
	errs.text("author", p.Author, maxAuthorBytes)
	errs.text("reason", p.Reason, maxReasonBytes)
	return errors.Join(errs...)
}

// choice is a field with the values that this version knows.
type choice struct {
	field, value string
	known        []string
}

func (p *Policy) choices() []choice {
	return []choice{
		choose("mode", p.Mode, ModeEnforce, ModeShadow, ModePause),
		choose("outage", p.Outage, OutageHold, OutageStop),
		choose("pacing", p.Pacing, PacingOff, PacingEven),
		choose("shape", p.Shape, ShapeFixed, ShapeSliding, ShapeBucket),
		choose("backoff", p.Backoff, BackoffInstance, BackoffFleet),
		choose("lend", p.Lend, lendOn, lendOff),
	}
}

func choose[T ~string](field string, value T, known ...T) choice {
	c := choice{field: field, value: string(value)}
	for _, k := range known {
		c.known = append(c.known, string(k))
	}
	return c
}

// Unsupported returns the reasons why no instance of this version can obey the policy, or
// nil: features that this version does not know, another rule of division than equal shares, and
// times with which the sum of all shares could exceed the total. Such a policy gives an instance
// no share.
func (p *Policy) Unsupported() (missing []string) {
	missing = unknown(p.Requires)
	for _, name := range p.Ignored {
		if strings.HasPrefix(name, goneShare) {
			missing = append(missing, name)
		}
	}
	for _, c := range p.choices() {
		if c.value != "" && !slices.Contains(c.known, c.value) {
			missing = append(missing, c.field+" "+shorten(c.value))
		}
	}
	var errs problems
	timed := p.WithDefaults()
	timed.checkTiming(&errs)
	timed.checkSliding(&errs)
	timed.checkInFlight(&errs)
	for _, l := range slices.Concat(timed.Limits, timed.Keys.Limits) {
		errs.phase("phase", l)
	}
	for _, err := range errs {
		missing = append(missing, err.Error())
	}
	return missing
}

func (p *Policy) checkZone(errs *problems) {
	_, err := time.LoadLocation(p.Zone)
	errs.add(err != nil || p.Zone == "Local", "zone", strconv.Quote(shorten(p.Zone)), `write one as "Europe/Berlin"; empty stands for UTC`, "is no time zone")
}

func (p *Policy) checkGuard(errs *problems) {
	errs.add(p.Guard < 0, "guard", p.Guard, "0 switches it off", "must not be negative")
	shortest := p.shortest()
	if shortest <= 0 {
		return
	}
	// Not 2*guard: it could overflow.
	most := (shortest - 1) / 2
	if p.shaped() && !slices.ContainsFunc(slices.Concat(p.Limits, p.Keys.Limits), func(l Limit) bool { return l.Window <= shortest }) && len(p.Next) == 0 {
		errs.add(p.Guard > most, "guard", p.Guard, "without a limit of up to a minute set shape fixed", "leaves nothing of the %v by which shape %s counts", shortest, p.Shape)
		return
	}
	errs.add(p.Guard > most, "guard", p.Guard, "it must be less than half of that; 0 switches it off", "leaves nothing of the shortest window, %v", shortest)
}

// shortest returns the shortest window of all limits, long ones of keys included; 0 if there are none. Under a shape it
// may be the second by which time is divided beside long limits alone, for the shape needs one.
func (p *Policy) shortest() (shortest time.Duration) {
	if p.shaped() {
		_, shortest = p.windows()
		return shortest
	}
	all := slices.Concat(p.Limits, p.Keys.Limits)
	for _, c := range p.Next {
		all = append(all, c.Limits...)
	}
	for _, l := range all {
		if shortest == 0 || l.Window < shortest {
			shortest = l.Window
		}
	}
	return shortest
}

func (p *Policy) checkDates(errs *problems) {
	errs.dated("from", p.From)
	errs.add(len(p.Next) > maxChanges, "next", len(p.Next), "", "at most %d announced changes", maxChanges)
	last := p.From
	for i, c := range p.Next {
		field := fmt.Sprintf("next[%d].from", i)
		errs.dated(field, c.From)
		errs.add(!c.From.After(last), field, stamp(c.From), "give each its time, in order", "must be after the change before it")
		last = c.From
	}
	errs.dated("time", p.Time)
}

// ValidateProvider checks a provider's name: a path of one or more parts
// separated by "/", of printable characters, at most 200 bytes long. No
// part is empty, "." or "..", so that the name reads the same everywhere.
func ValidateProvider(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "is empty"
	case len(name) > maxProviderBytes:
		problem = fmt.Sprintf("has %d bytes, more than the most, %d", len(name), maxProviderBytes)
	case !utf8.ValidString(name):
		problem = "is not valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		problem = "has a character that cannot be printed"
	case strings.TrimSpace(name) != name:
		problem = "begins or ends with a blank"
	default:
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == "." || part == ".." {
				problem = fmt.Sprintf("has a part %q", part)
				if part == "" {
					problem = "has an empty part"
				}
			}
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("provider %q %s; write a path like %q", shorten(name), problem, "payments/charge")
}

// problems collects field errors, in the order of the fields.
type problems []error

// add notes what is wrong with a field, if it is.
func (e *problems) add(wrong bool, field string, value any, hint, problem string, args ...any) {
	if wrong {
		*e = append(*e, &FieldError{field, shorten(fmt.Sprint(value)), fmt.Sprintf(problem, args...), hint})
	}
}

// within checks bounds, which belong to what is allowed; NaN is never within them.
func within[T cmp.Ordered](e *problems, field string, value, least, most T, hint string) {
	e.add(!(value >= least && value <= most), field, value, hint, "must be from %v to %v", least, most)
}

// limits checks sorted limits of windows up to the longest.
func (e *problems) limits(field string, limits []Limit, longest time.Duration) {
	e.add(len(limits) == 0 || len(limits) > maxLimits, field, counted(len(limits)), hintForm, "from 1 to %d limits are needed", maxLimits)
	for i, l := range limits {
		if l.InFlight {
			continue // see checkInFlight
		}
		permits, window := fmt.Sprintf("%s[%d].permits", field, i), fmt.Sprintf("%s[%d].window", field, i)
		e.add(i > 0 && l.Window == limits[max(i, 1)-1].Window, field, FormatLimits(limits),
			"a window length names a limit: keep one", "two limits have the same window")
		e.phase(fmt.Sprintf("%s[%d].phase", field, i), l)
		if l.Window > MaxWindow && longest > MaxWindow {
			within(e, permits, l.Permits, 1, MaxPermits, "pause admits nothing")
			e.add(oddBudget(l.Window), window, l.Window,
				hintCalendar, "must be whole seconds above %v, up to a day, or a month, which is 31 days here", MaxWindow)
			continue
		}
		within(e, permits, l.Permits, 0, MaxPermits, "")
		e.add(l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Millisecond != 0, window, l.Window,
			"", "must be whole milliseconds from %v to %v", MinWindow, MaxWindow)
	}
}

func (e *problems) phase(field string, l Limit) {
	problem, hint := wrongPhase(l.Phase, l.Window)
	e.add(problem != "", field, l.Phase, hint, "%s", problem)
}

// text checks what people write.
func (e *problems) text(field, value string, most int) {
	e.add(len(value) > most, field, fmt.Sprintf("(%d bytes)", len(value)), "shorten it", "at most %d bytes", most)
	e.add(!utf8.ValidString(value), field, strconv.Quote(shorten(value)), "", "is not valid UTF-8")
}

// dated checks a time, if it is set.
func (e *problems) dated(field string, t time.Time) {
	e.add(!t.IsZero() && (t.Before(earliest) || !t.Before(latest)), field, stamp(t), "write it as in 2027-01-01T00:00:00Z", "must lie in the years 1970 to 2199")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func counted(n int) string { return fmt.Sprintf("(%d of them)", n) }

// shorten bounds what an error quotes of a value.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// driftBound is r of the settle rule, inverted; package protocol says what it bounds.
const driftBound = 1000

// checkTiming checks that the settle time is long enough for the freshness, the clock
// error and the longest window. Then the sum of all shares stays under the total: S >=
// S'(1+r)/(1-r) + 2e(1+r) + w*r with r = 1/1000 and w the longest window; under shapes
// other than ShapeFixed three of them and the guard. Times out of their bounds fail
// too.
func (p *Policy) checkTiming(errs *problems) {
	before := len(*errs)
	within(errs, "settle", p.Settle, minSettle, MaxSettle, "")
	if len(*errs) == before || p.Freshness != p.defaultFreshness() {
		within(errs, "freshness", p.Freshness, minFreshness, MaxSettle, "")
	}
	errs.add(p.ClockError <= 0 || p.ClockError > MaxSettle, "clock_error", p.ClockError, "", "must be more than 0 and at most %v", MaxSettle)
	if len(*errs) > before {
		return
	}
	longest, _ := p.windows()
	longest = min(longest, MaxWindow) // a longer one is a problem of its own
	need := MinSettleFor(p.Freshness, p.ClockError, p.DriftWindow())
	errs.add(p.Settle < need, "settle", p.Settle, "raise settle, or lower freshness or clock_error",
		"too short: with freshness %v, clock_error %v and a longest window of %v it must be at least %v", p.Freshness, p.ClockError, longest, need)
}

// MinSettleFor returns the shortest settle time for a freshness, a clock error
// and a longest window (Policy.DriftWindow), rounded up to a millisecond. No
// settle time is enough for one that is negative or above its bound (MaxSettle
// for the first two, four times MaxWindow for the third): the result is then
// the largest Duration.
func MinSettleFor(freshness, clockError, window time.Duration) time.Duration {
	if min(freshness, clockError, window) < 0 || max(freshness, clockError) > MaxSettle || window > (shapedWindows+1)*MaxWindow {
		return math.MaxInt64
	}
	need := ceilDiv(int64(freshness)*(driftBound+1), driftBound-1) +
		ceilDiv(2*int64(clockError)*(driftBound+1), driftBound) + ceilDiv(int64(window), driftBound)
	return time.Duration(ceilDiv(need, int64(time.Millisecond))) * time.Millisecond
}

// defaultFreshness is five sixths of the settle time, or what the clock error
// and the longest window leave of it if that is less. Where they leave too
// little it is the former, and Validate says what is needed.
func (p *Policy) defaultFreshness() time.Duration {
	usual, window := (p.Settle / 6 * 5).Truncate(time.Millisecond), p.DriftWindow()
	fits := func(f time.Duration) bool { return MinSettleFor(f, p.ClockError, window) <= p.Settle }
	if fits(usual) || !fits(minFreshness) {
		return usual
	}
	n := sort.Search(int(usual/time.Millisecond), func(ms int) bool { return !fits(time.Duration(ms) * time.Millisecond) })
	return time.Duration(n-1) * time.Millisecond
}

// ceilDiv divides and rounds up; a is not negative, b is positive.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
