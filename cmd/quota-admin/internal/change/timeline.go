// Package change edits policies over time: the limits in force and the announced
// ones, the effect and size of a change, and the differences of two policies.
//
// It is pure: the instant is a parameter, and nothing is read or written.
package change

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// A policy's limits over time are its Limits, from its From on, and then those of
// each entry of Next. The policy that is written must keep the limits that were in
// force for windows that still run: a change that was announced and has come
// into force stays in Next until every window that started before it is over, by
// every clock of the fleet. Folded into Limits at once, it would bind those
// windows too, and a smaller limit would take permits from them that nobody
// meant to take.

// line is a policy's limits over time, in order. The From of the first may be
// zero: always. A nil line is a policy without limits.
type line []quota.LimitChange

func lineOf(p quota.Policy) line {
	if len(p.Limits) == 0 {
		return nil
	}
	p = p.Clone()
	return append(line{{From: p.From, Limits: p.Limits}}, p.Next...)
}

func (l line) into(p quota.Policy) quota.Policy {
	p = p.Clone()
	p.From, p.Limits, p.Next = l[0].From, l[0].Limits, nil
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
		keep = max(keep, p.LongestWindow()+2*p.ClockError)
	}
	return keep
}

func same(a, b []quota.Limit) bool { return a != nil && slices.Equal(a, b) }

// Lead returns how far ahead a change from one policy to the other must be
// announced so that it comes into force everywhere at one window and loses
// nothing: S + 2e, the larger of both, and time for the write itself.
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
	case same(old.LimitsAt(now.UnixNano()), next.LimitsAt(now.UnixNano())):
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
	case t.At.IsZero() && !same(old.LimitsAt(now.UnixNano()), limits):
		past = line{{Limits: limits}}
	case !t.At.IsZero():
		start = t.At
		if lead := Lead(old, next); t.At.Before(now.Add(lead)) {
			return next, fmt.Errorf("%s is too near: announce a change at least %v ahead (settle time, twice the clock error, %v to write it), at %s or later; or set it now",
				t.At.UTC().Format(time.RFC3339Nano), lead, protocol.AnnounceAhead, ceil(now.Add(lead), time.Second).UTC().Format(time.RFC3339))
		}
		future = future.put(quota.LimitChange{From: t.At.UTC(), Limits: limits})
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
	before := old.LimitsAt(end.UnixNano())
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
	case len(future) == 0 && at.IsZero():
		return p, fmt.Errorf("nothing is announced")
	case len(kept) == len(future):
		return p, fmt.Errorf("nothing is announced for %s%s", at.UTC().Format(time.RFC3339Nano), announced(future))
	case len(past)+len(kept) == 0:
		return p, fmt.Errorf("the policy itself begins at %s, and nothing would be left of it: delete it", future[0].From.UTC().Format(time.RFC3339Nano))
	}
	return slices.Concat(past.fold(now, running(p)), kept).into(p), nil
}

func announced(future line) string {
	if len(future) == 0 {
		return ", nor for any other time"
	}
	var all []string
	for _, e := range future {
		all = append(all, quota.FormatLimits(e.Limits)+" for "+e.From.UTC().Format(time.RFC3339Nano))
	}
	return "; announced is " + strings.Join(all, ", ")
}
