// Package change edits policies over time: the limits in force and the announced
// ones, the effect and size of a change, and the differences of two policies.
//
// It is pure: the instant is a parameter, and nothing is read or written.
package change

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A policy's limits over time are its Limits, from its From on, and then those of each
// entry of Next. The policy that is written must keep the limits that were in force for
// windows that still run. So a change that was announced stays in Next until every
// window that started before it is over, by every clock of the fleet. Folded into
// Limits at once, it would bind those windows too, and a smaller limit would take
// permits from them that nobody meant to take.

// line is a policy's limits over time, in order. The From of the first may be
// zero: always. A nil line is a policy without limits.
type line []quota.LimitChange

func lineOf(p quota.Policy) line {
	if len(p.Limits) == 0 {
		return nil
	}
	p = p.Clone()
	return append(line{{From: p.From, Limits: protocol.Short(&p)}}, p.Next...)
}

func (l line) into(p quota.Policy) quota.Policy {
	p = p.Clone()
	long := protocol.Long(&p)
	if p.From, p.Limits, p.Next = l[0].From, slices.Concat(l[0].Limits, long), nil; len(long) > 0 {
		p.Limits = slices.DeleteFunc(p.Limits, protocol.Free)
	}
	if len(l) > 1 {
		p.Next = slices.Clone(l[1:])
	}
	return p
}

// split parts what is in force at now, or was, from what is announced.
func (l line) split(now time.Time) (past, future line) {
	n := 0
	for n < len(l) && !l[n].From.After(now) {
		n++
	}
	return l[:n:n], l[n:]
}

// fold drops what no window that still runs asks for: all before the newest
// entry that is at least keep old.
func (l line) fold(now time.Time, keep time.Duration) line {
	for i, e := range slices.Backward(l) {
		if !e.From.After(now.Add(-keep)) {
			folded := slices.Clone(l[i:])
			folded[0].From = time.Time{}
			return folded
		}
	}
	return l
}

// put adds an entry, in place of one with the same instant.
func (l line) put(e quota.LimitChange) line {
	l = slices.DeleteFunc(slices.Clone(l), func(o quota.LimitChange) bool { return o.From.Equal(e.From) })
	l = append(l, e)
	slices.SortFunc(l, func(a, b quota.LimitChange) int { return a.From.Compare(b.From) })
	return l
}

// running is how long after an instant windows may still run that started before
// it, by any clock of the fleet.
func running(policies ...quota.Policy) (keep time.Duration) {
	for _, p := range policies {
		p = p.WithDefaults()
		keep = max(keep, protocol.LongestWindow(&p)+2*p.ClockError)
	}
	return keep
}

func same(a, b []quota.Limit) bool { return a != nil && slices.Equal(a, b) }

// Lead returns how far ahead a change must be announced to come into force everywhere
// at one window, without a loss: S + 2e, the larger of both, and time for the write
// itself.
func Lead(old, next quota.Policy) time.Duration {
	old, next = old.WithDefaults(), next.WithDefaults()
	return max(old.Settle, next.Settle) + 2*max(old.ClockError, next.ClockError) + protocol.AnnounceAhead
}

// Current returns the policy as it stands at now: in Limits what is in force, or
// will be first; in Next what is announced. It is for showing. It is not for
// writing: see Carry.
func Current(p quota.Policy, now time.Time) quota.Policy {
	l := lineOf(p)
	if l == nil {
		return p.Clone()
	}
	return l.fold(now, 0).into(p)
}

// At is Current of a policy in the history, nil for none: limits that were announced, and are in
// force by then, are no change of the next writer.
func At(p *quota.Policy, at time.Time) *quota.Policy {
	if p == nil {
		return nil
	}
	return new(Current(*p, at))
}

// Carry returns next as it should be written in place of old: where the limits in
// force stay the same, it goes on saying what running windows ask for. Other
// fields are next's.
func Carry(old, next quota.Policy, now time.Time) quota.Policy {
	was, will := lineOf(old), lineOf(next)
	if will == nil {
		return next.Clone()
	}
	oldPast, _ := was.split(now)
	past, future := will.split(now)
	switch keep := running(old, next); {
	case same(protocol.LimitsAt(&old, now.UnixNano()), protocol.LimitsAt(&next, now.UnixNano())):
		past = oldPast.fold(now, keep)
	case len(past) > 0:
		past = line{{Limits: past[len(past)-1].Limits}}
	}
	return slices.Concat(past, future).into(next)
}

// Timing is when a change of limits is in force. The zero Timing is now and for
// good.
type Timing struct {
	At  time.Time     // the instant from which on; zero: now
	For time.Duration // after which the limits return to what they would be; 0: never
}

// SetLimits returns the policy with other limits at the given time; announced
// changes stay. A policy without limits stands for none. next, if the change
// touches the policy's times too, is the policy with the others changed; its
// limits over time are not read.
func SetLimits(old, next quota.Policy, limits []quota.Limit, t Timing, now time.Time) (quota.Policy, error) {
	l := lineOf(old)
	keep := running(old, next, quota.Policy{Limits: limits})
	past, future := l.split(now)
	past = past.fold(now, keep)
	start := now
	switch {
	case t.At.IsZero() && !same(protocol.LimitsAt(&old, now.UnixNano()), limits):
		past = line{{Limits: limits}}
	case !t.At.IsZero():
		start = t.At
		if lead := Lead(old, next); t.At.Before(now.Add(lead)) {
			return next, fmt.Errorf("%s is too near: announce a change at least %v ahead (settle time, twice the clock error, %v to write it), at %s or later; or set it now",
				t.At.UTC().Format(time.RFC3339Nano), lead, protocol.AnnounceAhead, ceil(now.Add(lead), time.Second).UTC().Format(time.RFC3339))
		}
		if t.For != 0 || !same(protocol.LimitsAt(&old, t.At.UnixNano()), limits) { // not in force then by itself
			future = future.put(quota.LimitChange{From: t.At.UTC(), Limits: limits})
		}
	}
	if t.For != 0 {
		var err error
		if future, err = comeBack(&old, future, start, t.For, max(Lead(old, next), keep)); err != nil {
			return next, err
		}
	}
	return slices.Concat(past, future).into(next), nil
}

// comeBack adds the return to what the old policy has at the end.
func comeBack(old *quota.Policy, future line, start time.Time, d, least time.Duration) (line, error) {
	if d < least {
		return nil, fmt.Errorf("for %v: must be at least %v, so that the return can be announced and every limit has a window in between", d, least)
	}
	end := ceil(start.Add(d), time.Second).UTC()
	before := protocol.LimitsAt(old, end.UnixNano())
	if len(before) == 0 {
		return nil, fmt.Errorf("for %v: nothing was set to return to", d)
	}
	for _, e := range future {
		if e.From.After(start) && e.From.Before(end) {
			return nil, fmt.Errorf("for %v: a change to %s is announced for %s, in between; cancel it first",
				d, quota.FormatLimits(e.Limits), e.From.UTC().Format(time.RFC3339Nano))
		}
	}
	return future.put(quota.LimitChange{From: end, Limits: before}), nil
}

// ceil rounds up, so that instants that people read are short.
func ceil(t time.Time, d time.Duration) time.Time { return t.Add(d - 1).Truncate(d) }

// Cancel returns the policy without the announced changes, or without the one
// for the instant at, if that is not zero. The limits in force cannot be cancelled,
// nor the start of a policy that nothing comes before.
func Cancel(p quota.Policy, at, now time.Time) (quota.Policy, error) {
	past, future := lineOf(p).split(now)
	kept := slices.DeleteFunc(slices.Clone(future), func(e quota.LimitChange) bool { return at.IsZero() || e.From.Equal(at) })
	switch {
	case len(future) == 0:
		return p, errors.New("nothing is announced")
	case len(kept) == len(future):
		var all []string
		for _, e := range future {
			all = append(all, quota.FormatLimits(e.Limits)+" for "+e.From.UTC().Format(time.RFC3339Nano))
		}
		return p, fmt.Errorf("nothing is announced for %s; announced is %s", at.UTC().Format(time.RFC3339Nano), strings.Join(all, ", "))
	case len(past)+len(kept) == 0:
		return p, fmt.Errorf("the policy itself begins at %s, and nothing would be left of it: delete it", future[0].From.UTC().Format(time.RFC3339Nano))
	}
	return slices.Concat(past.fold(now, running(p)), kept).into(p), nil
}

// Limits are all limits of a policy, also those of more than a minute, as set takes them;
// "" without a policy.
func Limits(p *quota.Policy) string {
	if p == nil {
		return ""
	}
	return quota.FormatLimits(p.Limits)
}

// allOf adds a policy's limits of more than a minute, which are never announced. The limit
// that stands beside them alone is left out: it binds nobody.
func allOf(limits []quota.Limit, p *quota.Policy) []quota.Limit {
	long := protocol.Long(p)
	if len(long) > 0 {
		limits = slices.DeleteFunc(slices.Clone(limits), protocol.Free)
	}
	return slices.Concat(limits, long)
}

// Difference is one field in which two policies differ, in words; an empty text
// is a field that is not set.
type Difference struct {
	Field string `json:"field"` // as in JSON; an announced change is "next TIME"
	Old   string `json:"old,omitempty"`
	New   string `json:"new,omitempty"`
}

// String says it on one line of a terminal.
func (d Difference) String() string {
	field := d.Field
	if !strings.HasPrefix(field, "key ") { // a key's name stays as it is
		field = strings.ReplaceAll(field, "_", " ")
	}
	field = format.Clean(field)
	old := d.Old
	if d.Field == requires {
		old = strings.TrimSuffix(strings.TrimSuffix(old, hasIt), lacksIt)
	}
	switch {
	case d.Old == "":
		return field + " " + format.Show(d.New)
	case d.New == "" && d.Field == requires:
		return "no longer requires instances to know " + format.Show(old)
	case d.New == "":
		return "no " + field
	}
	return field + " " + format.Show(old) + " -> " + format.Show(d.New)
}

// requires is the field that says what instances must have, and the others are what words adds to its text.
const (
	requires = "requires"
	hasIt    = " (this version has that; instances of an older one without it issue nothing)"
	lacksIt  = " (an instance of a version without that issues nothing)"
)

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
	if old != nil && next != nil {
		for name, value := range leftOut() {
			was[name], is[name] = cmp.Or(was[name], value), cmp.Or(is[name], value)
		}
	}
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was[name] != is[name] {
			all = append(all, Difference{name, was[name], is[name]})
		}
	}
	return all
}

// leftOut returns the defaults of the fields that a policy's JSON leaves out where they have them.
func leftOut() map[string]string {
	d := quota.Policy{}.WithDefaults()
	return map[string]string{"shape": string(d.Shape), "lend": d.Lend, "backoff_max": d.BackoffMax.String(), "max_step": fmt.Sprint(d.MaxStep)}
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

func words(p *quota.Policy) map[string]string {
	all := map[string]string{}
	if p == nil {
		return all
	}
	for name, value := range Fields(p) {
		all[name] = word(value)
	}
	all["limits"] = Limits(p)
	if k := p.Keys; len(k.Limits) > 0 {
		all["keys"], all["keys_most"] = quota.FormatLimits(k.Limits), strconv.FormatInt(k.Most, 10)
		if all["keys_owners"] = "none (all share)"; k.Owners > 0 {
			all["keys_owners"] = strconv.FormatInt(k.Owners, 10)
		}
	}
	if needed, ok := all[requires]; ok {
		note := lacksIt
		if len(p.Unsupported()) == 0 {
			note = hasIt
		}
		all[requires] = needed + note
	}
	for _, name := range p.Ignored {
		all[name] = "ignored: went with an earlier version"
	}
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
	What    string // both limits, the factor, and the greatest step
	nothing bool   // no step is so great
}

// Error adds the ways out.
func (e *StepError) Error() string {
	if e.nothing {
		return e.What + ": if it is meant, use --force"
	}
	return e.What + ": if it is meant, use --force, or a larger --max-step"
}

// CheckStep returns a *StepError if the limits of next go further at once than the
// greatest step, 0 for next's own: from what is in force at now, or from one announced
// limit to the next. Limits that old announced already pass. The limits of keys count too.
// A limit of 0 gives no measure. So the change after it is compared with the limits before it,
// which are last if 0 is in force.
func CheckStep(old, next quota.Policy, last []quota.Limit, now time.Time, most float64) error {
	most = cmp.Or(most, next.WithDefaults().MaxStep)
	was, will := lineOf(old), lineOf(next)
	before := InForce(old, now)
	if len(before) > 0 && rate(before) == 0 {
		before = last
	}
	past, future := will.split(now)
	var steps line
	if len(past) > 0 {
		steps = line{{Limits: past[len(past)-1].Limits}}
	}
	for _, s := range append(steps, future...) {
		known := slices.Equal(protocol.Long(&old), protocol.Long(&next)) && slices.ContainsFunc(was, func(e quota.LimitChange) bool { return e.From.Equal(s.From) && same(e.Limits, s.Limits) })
		when := ""
		if !s.From.IsZero() {
			when = " at " + s.From.UTC().Format(time.RFC3339Nano)
		}
		after := allOf(s.Limits, &next)
		if err := tooFar(before, after, when, most); err != nil && !known {
			return err
		}
		if rate(after) > 0 {
			before = after
		}
	}
	return tooFar(old.Keys.Limits, next.Keys.Limits, " for each key", most)
}

// tooFar returns a *StepError for a change that goes further than the greatest step.
func tooFar(from, to []quota.Limit, when string, most float64) error {
	ratio := step(from, to)
	if max(ratio, 1/ratio) <= most {
		return nil
	}
	what := number(ratio) + " times as much"
	switch {
	case ratio == 0:
		what = "nothing at all (pause stops a whole provider)"
	case ratio < 1:
		what = number(1/ratio) + " times less"
	}
	what = fmt.Sprintf("%s -> %s%s is %s", quota.FormatLimits(from), quota.FormatLimits(to), when, what)
	if ratio == 0 {
		return &StepError{what, true}
	}
	return &StepError{fmt.Sprintf("%s; the greatest step is %sx", what, number(most)), false}
}

// InForce returns the limits of a policy that are in force at now, also those of more than a
// minute.
func InForce(p quota.Policy, now time.Time) []quota.Limit {
	return allOf(protocol.LimitsAt(&p, now.UnixNano()), &p)
}

// Nothing reports whether limits allow nothing in the long run.
func Nothing(limits []quota.Limit) bool { return rate(limits) == 0 }

// number rounds up to two digits after the point.
func number(f float64) string { return strconv.FormatFloat(math.Ceil(f*100)/100, 'f', -1, 64) }

// step returns the ratio that is furthest from 1 between limits of one window length, and
// between what both allow in the long run: a wrong unit changes the length. Calls in flight have no
// measure in common with other limits.
func step(old, next []quota.Limit) float64 {
	ratio := 1.0
	if len(old) == 0 || len(next) == 0 || old[0].InFlight != next[0].InFlight {
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

// rate is what limits allow in the long run, in permits a second; of calls in flight, at once.
func rate(limits []quota.Limit) float64 {
	least := math.Inf(1)
	for _, l := range limits {
		if l.InFlight {
			return float64(l.Permits)
		}
		least = min(least, float64(l.Permits)/l.Window.Seconds())
	}
	return least
}
