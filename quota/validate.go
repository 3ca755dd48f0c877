package quota

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a policy's and an instance's parts.
const (
	maxChanges       = 16   // announced changes in Policy.Next
	maxRequires      = 16   // features in Policy.Requires
	MaxNameBytes     = 128  // Instance.Name, Host, Version, one feature
	maxAuthorBytes   = 256  // Policy.Author
	MaxReasonBytes   = 1024 // Policy.Reason
	maxProviderBytes = 200  // a provider's name
	MaxWeight        = 1000 // Instance.Weight
	maxWeights       = 256  // overridden weights in Policy.Weights
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
	errs.limits("limits", p.Limits)
	for i, c := range p.Next {
		errs.limits(fmt.Sprintf("next[%d].limits", i), c.Limits)
	}
	for _, c := range p.choices() {
		if !slices.Contains(c.known, c.value) {
			errs.add(c.field, strconv.Quote(shorten(c.value)), "this version knows "+strings.Join(c.known, ", "), "")
		}
	}
	p.checkShares(&errs)
	p.checkShape(&errs)
	p.checkTiming(&errs)
	p.checkGuard(&errs)
	p.checkDates(&errs)
	if p.MaxStep != 0 {
		within(&errs, "max_step", p.MaxStep, 1, float64(MaxPermits), fmt.Sprintf("0 means the default, %v", DefaultMaxStep))
	}
	if len(p.Requires) > maxRequires {
		errs.add("requires", len(p.Requires), fmt.Sprintf("at most %d features", maxRequires), "")
	}
	for i, r := range p.Requires {
		field := fmt.Sprintf("requires[%d]", i)
		errs.text(field, r, MaxNameBytes)
		if r == "" {
			errs.add(field, strconv.Quote(r), "a feature has a name", "name it, or leave it out")
		}
	}
	errs.text("author", p.Author, maxAuthorBytes)
	errs.text("reason", p.Reason, MaxReasonBytes)
	return errors.Join(errs...)
}

// choice is a field with the values that this version knows.
type choice struct {
	field, value string
	known        []string
}

func (p *Policy) choices() []choice {
	return []choice{
		choose("share", p.Share, ShareEqual, ShareWeighted, ShareDemand),
		choose("mode", p.Mode, ModeEnforce, ModeShadow, ModePause),
		choose("outage", p.Outage, OutageHold, OutageStop),
		choose("pacing", p.Pacing, PacingOff, PacingEven),
		choose("shape", p.Shape, ShapeFixed, ShapeSliding, ShapeBucket),
	}
}

func choose[T ~string](field string, value T, known ...T) choice {
	c := choice{field: field, value: string(value)}
	for _, k := range known {
		c.known = append(c.known, string(k))
	}
	return c
}

// Unsupported returns what the policy needs and this version does not know, in
// words; nil if it knows all. An instance that lacks any of it gives itself a
// share of 0: to guess could break the sum.
func (p *Policy) Unsupported() (missing []string) {
	for _, r := range p.Requires {
		if r != featureGuardAuto && r != featureShapes {
			missing = append(missing, r)
		}
	}
	for _, c := range p.choices() {
		if c.value != "" && !slices.Contains(c.known, c.value) {
			missing = append(missing, c.field+" "+shorten(c.value))
		}
	}
	return missing
}

func (p *Policy) checkShares(errs *problems) {
	if len(p.Weights) > maxWeights {
		errs.add("weights", fmt.Sprintf("(%d of them)", len(p.Weights)), fmt.Sprintf("at most %d overridden weights", maxWeights), "set weights where the instances join")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.Weights)) {
		errs.text("weights", name, MaxNameBytes)
		within(errs, fmt.Sprintf("weights[%q]", shorten(name)), p.Weights[name], 1, MaxWeight, "")
	}
	within(errs, "floor_percent", p.Floor, 0, 100, fmt.Sprintf("0 stands for %d", defaultFloor))
}

func (p *Policy) checkGuard(errs *problems) {
	if p.Guard < 0 {
		errs.add("guard", p.Guard, "must not be negative", "0 switches it off")
	}
	_, shortest := p.windows()
	if shortest <= 0 {
		return
	}
	// Not 2*guard, nor a sum: they could overflow.
	most := (shortest - 1) / 2
	switch {
	case p.Guard > most:
		errs.add("guard", p.Guard, fmt.Sprintf("leaves nothing of the shortest window, %v", shortest), "it must be less than half of that")
	case p.GuardAuto && p.ClockError > most-max(p.Guard, 0):
		errs.add("guard", FormatGuard(p.Guard, true), fmt.Sprintf("with clock_error %v it can leave nothing of the shortest window, %v", p.ClockError, shortest),
			"lower clock_error: together they must be less than half of that window")
	}
}

func (p *Policy) checkDates(errs *problems) {
	errs.when("from", p.From)
	if len(p.Next) > maxChanges {
		errs.add("next", len(p.Next), fmt.Sprintf("at most %d announced changes", maxChanges), "")
	}
	last := p.From
	for i, c := range p.Next {
		field := fmt.Sprintf("next[%d].from", i)
		errs.when(field, c.From)
		if !c.From.After(last) {
			errs.add(field, c.From.UTC().Format(time.RFC3339Nano), "must be after the change before it", "give each its time, in order")
		}
		last = c.From
	}
	errs.when("time", p.Time)
}

// Validate returns all that is wrong with the instance, as joined *FieldErrors,
// or nil. An instance may end at the instant at which it begins: one that leaves
// while it joins never takes part.
func (i *Instance) Validate() error {
	var errs problems
	errs.text("name", i.Name, MaxNameBytes)
	errs.text("host", i.Host, MaxNameBytes)
	errs.text("version", i.Version, MaxNameBytes)
	within(&errs, "weight", i.Weight, 0, MaxWeight, "0 stands for 1")
	errs.when("started", i.Started)
	errs.when("from", i.From)
	errs.when("until", i.Until)
	if !i.Until.IsZero() && i.Until.Before(i.From) {
		errs.add("until", i.Until.UTC().Format(time.RFC3339Nano), "lies before from, "+i.From.UTC().Format(time.RFC3339Nano), "an instance ends after it begins")
	}
	return errors.Join(errs...)
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

func (e *problems) add(field string, value any, problem, hint string) {
	*e = append(*e, &FieldError{field, shorten(fmt.Sprint(value)), problem, hint})
}

// within checks bounds, which belong to what is allowed.
func within[T cmp.Ordered](e *problems, field string, value, least, most T, hint string) {
	if !(value >= least && value <= most) { // nor is it NaN
		e.add(field, value, fmt.Sprintf("must be from %v to %v", least, most), hint)
	}
}

// limits checks a list of limits that is sorted by window.
func (e *problems) limits(field string, limits []Limit) {
	if len(limits) == 0 || len(limits) > maxLimits {
		e.add(field, fmt.Sprintf("(%d of them)", len(limits)), fmt.Sprintf("from 1 to %d limits are needed", maxLimits), hintForm)
	}
	for i, l := range limits {
		if i > 0 && l.Window == limits[i-1].Window {
			e.add(field, FormatLimits(limits), "two limits have the same window", "a window length names a limit: keep one")
		}
		within(e, fmt.Sprintf("%s[%d].permits", field, i), l.Permits, 0, MaxPermits, "")
		if l.Window < MinWindow || l.Window > MaxWindow || l.Window%time.Millisecond != 0 {
			e.add(fmt.Sprintf("%s[%d].window", field, i), l.Window, fmt.Sprintf("must be whole milliseconds from %v to %v", MinWindow, MaxWindow), "")
		}
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

// when checks a time, if it is set.
func (e *problems) when(field string, t time.Time) {
	if !t.IsZero() && (t.Before(earliest) || !t.Before(latest)) {
		e.add(field, t.UTC().Format(time.RFC3339Nano), "must lie in the years 1970 to 2199", "write it as in 2027-01-01T00:00:00Z")
	}
}

// shorten bounds what an error quotes of a value.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
