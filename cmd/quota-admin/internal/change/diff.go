package change

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Difference is one field in which two policies differ, in words; an empty text
// is a field that is not set.
type Difference struct {
	Field string `json:"field"` // as in JSON; an announced change is "next TIME"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// OfOneWrite are the fields of a policy's JSON that tell who wrote it, when and why.
var OfOneWrite = []string{"schema", "author", "reason", "time"}

// Fields returns the fields of a policy's JSON, without OfOneWrite.
func Fields(p *quota.Policy) (fields map[string]any) {
	if text, err := json.Marshal(p); err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		_ = d.Decode(&fields)
	}
	for _, name := range OfOneWrite {
		delete(fields, name)
	}
	return fields
}

// Diff returns in what two policies differ, beside OfOneWrite, by field. Nil stands for
// no policy.
func Diff(old, next *quota.Policy) (all []Difference) {
	was, is := words(old), words(next)
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			all = append(all, Difference{name, was[name], is[name]})
		}
	}
	return all
}

// Beside is Diff without the limits; it is nil where one of the policies is.
func Beside(old, next *quota.Policy) []Difference {
	if old == nil || next == nil {
		return nil
	}
	return slices.DeleteFunc(Diff(old, next), func(d Difference) bool { return d.Field == "limits" })
}

// Same reports whether writing next in place of old would change nothing but
// OfOneWrite.
func Same(old, next quota.Policy, now time.Time) bool {
	o, n := Current(old, now), Current(next, now)
	return len(Diff(&o, &n)) == 0
}

// words returns a policy's fields as people read them.
func words(p *quota.Policy) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	for name, value := range Fields(p) {
		all[name] = word(value)
	}
	all["limits"] = quota.FormatLimits(p.Limits)
	delete(all, "next")
	for _, c := range p.Next {
		all["next "+c.From.UTC().Format(time.RFC3339Nano)] = quota.FormatLimits(c.Limits)
	}
	return all
}

func word(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		words := make([]string, len(v))
		for i := range v {
			words[i] = word(v[i])
		}
		return strings.Join(words, ", ")
	}
	text, _ := json.Marshal(value)
	return string(text)
}

// StepError says that one change goes further than the greatest step allows.
type StepError struct {
	What string // both limits, the factor, and the greatest step
}

// Error adds the ways out.
func (e *StepError) Error() string {
	return e.What + ": if it is meant, use --force, or --max-step for this policy"
}

// CheckStep returns a *StepError if the limits of next go further at once than
// the greatest step, 0 for next's own: from what is in force at now, or from one
// announced limit to the next. What old announced already passes.
func CheckStep(old, next quota.Policy, now time.Time, most float64) error {
	most = cmp.Or(most, next.MaxStep, quota.DefaultMaxStep)
	was, will := lineOf(old), lineOf(next)
	before := old.LimitsAt(now.UnixNano())
	past, future := will.split(now)
	var steps line
	if len(past) > 0 {
		steps = line{{Limits: past[len(past)-1].Limits}}
	}
	for _, s := range append(steps, future...) {
		known := slices.ContainsFunc(was, func(e quota.LimitChange) bool { return e.From.Equal(s.From) && same(e.Limits, s.Limits) })
		if ratio := step(before, s.Limits); max(ratio, 1/ratio) > most && !known {
			what, when := number(ratio)+" times as much", ""
			switch {
			case ratio == 0:
				what = "nothing at all (pause says that better)"
			case ratio < 1:
				what = number(1/ratio) + " times less"
			}
			if !s.From.IsZero() {
				when = " at " + s.From.UTC().Format(time.RFC3339Nano)
			}
			return &StepError{fmt.Sprintf("%s -> %s%s is %s; the greatest step is %sx", quota.FormatLimits(before), quota.FormatLimits(s.Limits), when, what, number(most))}
		}
		before = s.Limits
	}
	return nil
}

// number rounds up to two digits after the point.
func number(f float64) string { return strconv.FormatFloat(math.Ceil(f*100)/100, 'f', -1, 64) }

// step returns the ratio that is furthest from 1 between limits of one window length, and
// between what both allow in the long run: a wrong unit changes the length. A
// limit of 0 gives no measure for what comes after it.
func step(old, next []quota.Limit) float64 {
	ratio := 1.0
	if len(old) == 0 || len(next) == 0 {
		return ratio
	}
	see := func(from, to float64) {
		if r := to / from; from != 0 && max(r, 1/r) > max(ratio, 1/ratio) {
			ratio = r
		}
	}
	for _, o := range old {
		for _, n := range next {
			if o.Window == n.Window {
				see(float64(o.Permits), float64(n.Permits))
			}
		}
	}
	see(rate(old), rate(next))
	return ratio
}

// rate is what limits allow in the long run, in permits a second.
func rate(limits []quota.Limit) float64 {
	least := math.Inf(1)
	for _, l := range limits {
		least = min(least, float64(l.Permits)/l.Window.Seconds())
	}
	return least
}
