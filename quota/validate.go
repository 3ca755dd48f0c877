package quota

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a policy's and an instance's parts.
const (
	MaxChanges       = 16      // announced changes in Policy.Next
	MaxRequires      = 16      // features in Policy.Requires
	MaxNameBytes     = 128     // Instance.Name, Host, Version, one feature
	MaxAuthorBytes   = 256     // Policy.Author
	MaxReasonBytes   = 1024    // Policy.Reason
	MaxProviderBytes = 200     // a provider's name
	MaxWeight        = 1000000 // Instance.Weight
)

// The years within which every time must lie.
var (
	earliest = time.Unix(0, 0)
	latest   = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// FieldError says which field of a value is not valid, and why.
type FieldError struct {
	Field   string // as in JSON
	Value   string
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

// WithDefaults returns the policy with defaults in place of zero fields and
// limits sorted by window. The receiver is not changed.
func (p Policy) WithDefaults() Policy {
	p = p.Clone()
	def(&p.Share, ShareEqual)
	def(&p.Mode, ModeEnforce)
	def(&p.Settle, DefaultSettle)
	def(&p.ClockError, DefaultClockError)
	def(&p.Freshness, p.defaultFreshness())
	def(&p.Outage, OutageHold)
	def(&p.Pacing, PacingOff)
	sortLimits(p.Limits)
	for _, c := range p.Next {
		sortLimits(c.Limits)
	}
	return p
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// defaultFreshness is five sixths of the settle time, or what the clock error
// and the longest window leave of it if that is less.
func (p *Policy) defaultFreshness() time.Duration {
	usual := (p.Settle * 5 / 6).Truncate(time.Millisecond)
	for f := usual; f > 0; f -= time.Millisecond {
		if MinSettleFor(f, p.ClockError, p.LongestWindow()) <= p.Settle {
			return f
		}
	}
	return usual // none will do: CheckTiming says what is needed
}

// Clone returns a copy that shares nothing with p.
func (p Policy) Clone() Policy {
	p.Limits = slices.Clone(p.Limits)
	p.Requires = slices.Clone(p.Requires)
	p.Next = slices.Clone(p.Next)
	for i := range p.Next {
		p.Next[i].Limits = slices.Clone(p.Next[i].Limits)
	}
	return p
}

// Supported returns what the policy needs and this version does not know. An
// instance that lacks any of it gives itself a share of 0.
func (p *Policy) Supported() (missing []string) {
	missing = append(missing, p.Requires...)
	if p.Share != "" && p.Share != ShareEqual {
		missing = append(missing, "share "+string(p.Share))
	}
	if p.Pacing != "" && p.Pacing != PacingOff {
		missing = append(missing, "pacing "+string(p.Pacing))
	}
	return missing
}

// LongestWindow returns the longest window of all limits, announced ones
// included; 0 if there are none.
func (p *Policy) LongestWindow() time.Duration {
	longest := time.Duration(0)
	p.eachLimit(func(_ string, l Limit) { longest = max(longest, l.Window) })
	return longest
}

func (p *Policy) eachLimit(f func(field string, l Limit)) {
	for i, l := range p.Limits {
		f(fmt.Sprintf("limits[%d]", i), l)
	}
	for i, c := range p.Next {
		for j, l := range c.Limits {
			f(fmt.Sprintf("next[%d].limits[%d]", i, j), l)
		}
	}
}

// Validate returns all that is wrong with the policy, joined, or nil. Zero
// fields stand for their defaults.
func (p Policy) Validate() error {
	p = p.WithDefaults()
	var errs problems
	errs.limits("limits", p.Limits)
	p.eachLimit(errs.limit)
	oneOf(&errs, "share", p.Share, ShareEqual, ShareWeighted, ShareDemand)
	oneOf(&errs, "mode", p.Mode, ModeEnforce, ModeShadow, ModePause)
	oneOf(&errs, "outage", p.Outage, OutageHold, OutageStop)
	oneOf(&errs, "pacing", p.Pacing, PacingOff)
	p.checkTimes(&errs)
	errs.when("from", p.From, true)
	errs.when("time", p.Time, true)
	p.checkNext(&errs)
	if len(p.Requires) > MaxRequires {
		errs.add("requires", len(p.Requires), fmt.Sprintf("at most %d features", MaxRequires), "")
	}
	for _, r := range p.Requires {
		errs.text("requires", r, MaxNameBytes)
	}
	errs.text("author", p.Author, MaxAuthorBytes)
	errs.text("reason", p.Reason, MaxReasonBytes)
	return errors.Join(errs...)
}

func (p *Policy) checkTimes(errs *problems) {
	before := len(*errs)
	if p.Settle < MinSettle || p.Settle > MaxSettle {
		errs.add("settle", p.Settle, fmt.Sprintf("must be from %v to %v", MinSettle, MaxSettle), "")
	}
	if p.Freshness <= 0 || p.Freshness > MaxSettle {
		errs.add("freshness", p.Freshness, fmt.Sprintf("must be more than 0 and at most %v", MaxSettle), "")
	}
	if p.ClockError <= 0 || p.ClockError > MaxSettle {
		errs.add("clock_error", p.ClockError, fmt.Sprintf("must be more than 0 and at most %v", MaxSettle), "")
	}
	if p.Guard < 0 {
		errs.add("guard", p.Guard, "must not be negative", "0 switches it off")
	}
	p.eachLimit(func(field string, l Limit) {
		if p.Guard > 0 && l.Window >= MinWindow && 2*p.Guard >= l.Window {
			errs.add("guard", p.Guard, fmt.Sprintf("leaves nothing of the window of %s, %v", field, l.Window), "it must be less than half of the shortest window")
		}
	})
	if len(*errs) == before {
		if err := p.CheckTiming(); err != nil {
			*errs = append(*errs, err)
		}
	}
}

func (p *Policy) checkNext(errs *problems) {
	if len(p.Next) > MaxChanges {
		errs.add("next", len(p.Next), fmt.Sprintf("at most %d announced changes", MaxChanges), "")
	}
	last := p.From
	for i, c := range p.Next {
		field := fmt.Sprintf("next[%d]", i)
		errs.limits(field+".limits", c.Limits)
		errs.when(field+".from", c.From, false)
		if !c.From.After(last) {
			errs.add(field+".from", c.From.UTC().Format(time.RFC3339Nano), "must be after the change before it", "sort the changes by time")
		}
		last = c.From
	}
}

// CheckTiming returns nil if the settle time is long enough for the freshness,
// the clock error and the longest window, so that the sum of all shares stays
// under the total: S >= S'(1+r)/(1-r) + 2e(1+r) + w*r with r = 1/DriftBound.
func (p Policy) CheckTiming() error {
	p = p.WithDefaults()
	need := MinSettleFor(p.Freshness, p.ClockError, p.LongestWindow())
	if p.Settle >= need {
		return nil
	}
	return &FieldError{
		Field: "settle", Value: p.Settle.String(),
		Problem: fmt.Sprintf("too short: with freshness %v, clock_error %v and a longest window of %v it must be at least %v",
			p.Freshness, p.ClockError, p.LongestWindow(), need),
		Hint: "raise settle, or lower freshness",
	}
}

// MinSettleFor returns the shortest settle time for a freshness, a clock error
// and a longest window, rounded up to a millisecond.
func MinSettleFor(freshness, clockError, window time.Duration) time.Duration {
	const r = DriftBound
	need := ceilDiv(int64(freshness)*(r+1), r-1) + ceilDiv(2*int64(clockError)*(r+1), r) + ceilDiv(int64(window), r)
	return time.Duration(ceilDiv(need, int64(time.Millisecond))) * time.Millisecond
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// Validate returns all that is wrong with the instance, joined, or nil.
func (i *Instance) Validate() error {
	var errs problems
	errs.text("name", i.Name, MaxNameBytes)
	errs.text("host", i.Host, MaxNameBytes)
	errs.text("version", i.Version, MaxNameBytes)
	if i.Weight < 0 || i.Weight > MaxWeight {
		errs.add("weight", i.Weight, fmt.Sprintf("must be from 1 to %d", MaxWeight), "0 stands for 1")
	}
	errs.when("from", i.From, true)
	errs.when("until", i.Until, true)
	return errors.Join(errs...)
}

// ValidateProvider checks a provider's name: a path of one or more parts
// separated by "/", printable, at most MaxProviderBytes long.
func ValidateProvider(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "is empty"
	case len(name) > MaxProviderBytes:
		problem = fmt.Sprintf("has %d bytes, more than the most, %d", len(name), MaxProviderBytes)
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
	if len(name) > MaxProviderBytes {
		name = name[:MaxProviderBytes] + "..."
	}
	return fmt.Errorf("provider %q %s; write a path like %q", name, problem, "payments/charge")
}

// problems collects field errors.
type problems []error

func (e *problems) add(field string, value any, problem, hint string) {
	*e = append(*e, &FieldError{field, fmt.Sprint(value), problem, hint})
}

func (e *problems) limits(field string, limits []Limit) {
	if len(limits) == 0 || len(limits) > MaxLimits {
		e.add(field, fmt.Sprintf("(%d of them)", len(limits)), fmt.Sprintf("from 1 to %d limits are needed", MaxLimits), hintForm)
	}
	for i := 1; i < len(limits); i++ {
		if limits[i].Window == limits[i-1].Window {
			e.add(field, FormatLimits(limits), "two limits have the same window", "a window length names a limit: keep one")
		}
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

func (e *problems) text(field, value string, most int) {
	if len(value) > most {
		e.add(field, fmt.Sprintf("(%d bytes)", len(value)), fmt.Sprintf("at most %d bytes", most), "shorten it")
	}
	if !utf8.ValidString(value) {
		e.add(field, fmt.Sprintf("%q", value), "is not valid UTF-8", "")
	}
}

func (e *problems) when(field string, t time.Time, zero bool) {
	if zero && t.IsZero() {
		return
	}
	if t.Before(earliest) || !t.Before(latest) {
		e.add(field, t.UTC().Format(time.RFC3339Nano), "must lie in the years 1970 to 2199", "")
	}
}

func oneOf[T ~string](e *problems, field string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	e.add(field, fmt.Sprintf("%q", string(value)), "this version knows "+strings.Join(names, ", "), "")
}

// nanos returns t in nanoseconds since the Unix epoch, held within int64: a time
// from the year 1 or 9999 must not wrap around.
func nanos(t time.Time) int64 {
	switch {
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}
