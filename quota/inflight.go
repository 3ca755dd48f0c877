package quota

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// This file is about limits of calls that are under way at once.

// Bounds of the hold of a limit in flight.
const (
	minHold = 4 * time.Second
	maxHold = day
)

// HoldParts is in how many parts of time, all as long, the hold of a limit in flight is counted. After a crash the
// places of an instance are free for others within the hold and three parts (docs/proof/protocol.md, section 14). Of one
// and a half holds 8 parts leave an eighth of the hold in which others take them, and 6 leave nothing. With more than 8,
// places move more often from part to part, and while etcd is away calls begin for a shorter time.
const HoldParts = 8

// Long reports whether no instance has a share of the limit: each takes permits from etcd before it needs them.
// So it is with a window of more than MaxWindow, and with a limit in flight.
func (l *Limit) Long() bool { return l.Window > MaxWindow || l.InFlight }

// ByParts reports whether the limit counts by parts of time, SlidingParts or HoldParts of them, and so has no window
// that ends: one that slides by itself does, and one in flight.
func (l *Limit) ByParts() bool { return l.Sliding || l.InFlight }

const (
	hintInFlight = `write how many calls, and the longest time of one, as in "200 inflight hold=10m"`
	// hintAlone is the way out where a limit in flight has others beside it.
	hintAlone = "set the others for a provider of their own, and take from both by TakeAll"
)

// inFlightForm matches a limit in flight: permits, what has to be a hold, and its value.
var inFlightForm = regexp.MustCompile(`(?s)^\s*(\d+(?:_\d+)*)\s*/?\s*in[-_ ]?flight\b\s*((?:hold\s*=\s*)?)([^\s]*)\s*(.*)$`)

// holdForm matches a duration of one unit.
var holdForm = regexp.MustCompile(`^(\d{1,9})(s|m|h|d)$`)

// parseInFlight reads a limit in flight; ok is false if the text is of another one. An error's offset is within the
// text.
func parseInFlight(text string) (l Limit, wrong *SyntaxError, ok bool) {
	at := inFlightForm.FindStringSubmatchIndex(text)
	if at == nil {
		return l, nil, false
	}
	fail := func(group int, hint, problem string, args ...any) (Limit, *SyntaxError, bool) {
		return l, &SyntaxError{Offset: at[2*group], Problem: fmt.Sprintf(problem, args...), Hint: hint}, true
	}
	value := text[at[6]:at[7]]
	l = Limit{Permits: number(text[at[2]:at[3]]), InFlight: true}
	found := holdForm.FindStringSubmatch(value)
	switch {
	case text[at[4]:at[5]] == "" && value == "":
		return fail(3, hintInFlight, "the longest time of a call is missing")
	case text[at[4]:at[5]] == "":
		return fail(3, hintInFlight, "%q does not belong here", shorten(value))
	case found == nil:
		return fail(3, "write whole seconds, as in hold=90s or hold=10m", "%q is no hold", shorten(value))
	case at[8] < at[9]:
		return fail(4, `separate limits by ","`, "%q does not belong here", shorten(text[at[8]:at[9]]))
	}
	l.Window = time.Duration(min(number(found[1]), int64(2*maxHold/time.Second))) * units[found[2]]
	if problem, hint := wrongPermits(&l); problem != "" {
		return fail(1, hint, "%s", problem)
	}
	if problem, hint := wrongHold(&l); problem != "" {
		return fail(3, hint, "%s", problem)
	}
	return l, nil, true
}

// wrongPermits says what is wrong with the number of a limit in flight, and the way out; nothing if it is valid.
func wrongPermits(l *Limit) (problem, hint string) {
	switch {
	case l.Permits < 1:
		return "a limit in flight needs at least one permit", "pause the provider to admit nothing"
	case l.Permits > MaxPermits:
		return fmt.Sprintf("the permits are more than the most, %d", MaxPermits), "lower the number"
	}
	return "", ""
}

// wrongHold says what is wrong with the hold of a limit in flight, and the way out; nothing if it is valid.
func wrongHold(l *Limit) (problem, hint string) {
	switch {
	case l.Phase != 0 || l.Sliding:
		return "a limit in flight counts in no windows", "leave out their phase, or that they slide"
	case l.Window < minHold || l.Window > maxHold:
		return fmt.Sprintf("the hold %v is not from %s to %s", l.Window, windowText(minHold), windowText(maxHold)), "write the longest time of a call, and end calls that take longer"
	case l.Window%time.Second != 0:
		return fmt.Sprintf("the hold %v has a part of a second", l.Window), "use whole seconds"
	}
	return "", ""
}

func (l Limit) inFlightText() string {
	return fmt.Sprintf("%d inflight hold=%s", l.Permits, windowText(l.Window))
}

// InFlight reports whether the policy limits calls that are under way at once. Then it has no other limit.
func (p *Policy) InFlight() bool { return len(p.Limits) > 0 && p.Limits[0].InFlight }

// checkInFlight checks that a limit in flight is the only limit, and that clocks and calls are as good as its hold
// demands.
func (p *Policy) checkInFlight(errs *problems) {
	isInFlight := func(l Limit) bool { return l.InFlight }
	errs.add(slices.ContainsFunc(p.Keys.Limits, isInFlight), "keys.limits", FormatLimits(p.Keys.Limits), "limit a provider's calls in flight", "a key has no limit in flight")
	for i, c := range p.Next {
		errs.add(slices.ContainsFunc(c.Limits, isInFlight), fmt.Sprintf("next[%d].limits", i), FormatLimits(c.Limits), "set it when it is to count", "a limit in flight is not announced")
	}
	i := slices.IndexFunc(p.Limits, isInFlight)
	if i < 0 {
		return
	}
	l := p.Limits[i]
	if problem, hint := wrongPermits(&l); problem != "" {
		errs.add(true, fmt.Sprintf("limits[%d].permits", i), l.Permits, hint, "%s", problem)
	}
	if problem, hint := wrongHold(&l); problem != "" {
		errs.add(true, fmt.Sprintf("limits[%d].window", i), l.Window, hint, "%s", problem)
		return
	}
	errs.add(len(p.Limits) > 1, "limits", FormatLimits(p.Limits), hintAlone, "a limit in flight is the only one of its provider")
	errs.add(p.Keys.set(), "keys", FormatLimits(p.Keys.Limits), hintAlone, "a provider of calls in flight has no limits by key")
	errs.add(len(p.Next) > 0, "next", counted(len(p.Next)), "set the limit when it is to count", "a limit in flight is not announced")
	errs.add(p.shaped(), "shape", p.Shape, "set shape fixed", "calls in flight have no shape")
	errs.add(p.Pacing == PacingEven, "pacing", p.Pacing, "set pacing off", "calls in flight have no pacing")
	errs.add(p.Critical > 0, "classes.critical", p.Critical, "set it to 0: critical calls that wait are served first in any case", "calls in flight have no share to keep a part of")
	errs.add(p.WarmUp != 0, "warm_up", p.WarmUp, "set it to 0", "calls in flight have no share that grows")
	part := l.Window / HoldParts
	errs.add(p.blurs(part), "limits", l,
		"lower clock_error or guard, or raise the hold", "twice the clock_error and the guard, %v, must be less than an eighth of the hold, %v", 2*p.ClockError+p.Guard, part)
}
