package quota

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file is about when the windows of budgets begin: later by a phase, or everywhere.

const hintPhase = "write by how much later than 0:00 a window begins, as in 5000/h@17m or 10000/d@12:00"

// phaseForm matches a time of the day, or a duration of one unit.
var phaseForm = regexp.MustCompile(`^(?:([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?|(\d{1,6})([smh]))$`)

// readPhase reads "" or "@" and a phase of a window. Where problem is empty the phase is valid.
func readPhase(text string, window time.Duration) (phase time.Duration, problem, hint string) {
	if text == "" {
		return 0, "", ""
	}
	text = strings.TrimSpace(text[1:])
	found := phaseForm.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Sprintf("%q is no phase", shorten(text)), hintPhase
	}
	if found[4] != "" {
		phase = time.Duration(number(found[4])) * units[found[5]]
	} else {
		phase = time.Duration(number(found[1]))*time.Hour + time.Duration(number(found[2]))*time.Minute + time.Duration(number(found[3]))*time.Second
	}
	problem, hint = wrongPhase(phase, window)
	return phase, problem, hint
}

// wrongPhase says what is wrong with the phase of a limit of a window, and the way out; nothing if it is valid.
func wrongPhase(phase, window time.Duration) (problem, hint string) {
	switch {
	case phase == 0:
		return "", ""
	case window <= MaxWindow:
		return fmt.Sprintf("a window of %s has no phase", windowText(window)), fmt.Sprintf("leave it out: only windows of more than %s have one", windowText(MaxWindow))
	case window > day:
		return "a month has no phase", "leave it out: a month begins with its first day"
	case phase < 0 || phase >= window:
		return fmt.Sprintf("the phase %v is not within a window of %s", phase, windowText(window)), "write one from 0s to less than the window"
	case phase%time.Second != 0:
		return fmt.Sprintf("the phase %v has a part of a second", phase), "use whole seconds"
	}
	return "", ""
}

// phaseText is the phase as readPhase reads it.
func (l Limit) phaseText() string {
	switch {
	case l.Phase == 0:
		return ""
	case l.Window < day || l.Phase < 0:
		return "@" + windowText(l.Phase)
	}
	clock := time.Time{}.Add(l.Phase)
	if l.Phase%time.Minute != 0 {
		return clock.Format("@15:04:05")
	}
	return clock.Format("@15:04")
}

// Features that a policy's JSON names where a limit has them. Versions that do not know them would count in other
// windows.
const (
	featurePhases   = "phases"
	featureSliding  = "sliding budgets"
	featureInFlight = "calls in flight"
)

// requires are the features that the policy's JSON names.
func (p *Policy) requires() []string {
	all, limits := unknown(p.Requires), slices.Concat(p.Limits, p.Keys.Limits)
	if slices.ContainsFunc(limits, func(l Limit) bool { return l.Phase != 0 }) {
		all = append(all, featurePhases)
	}
	if slices.ContainsFunc(limits, func(l Limit) bool { return l.Sliding }) {
		all = append(all, featureSliding)
	}
	if p.InFlight() {
		all = append(all, featureInFlight)
	}
	return all
}

// unknown returns the features that this version does not know.
func unknown(features []string) (all []string) {
	for _, f := range features {
		if f != featurePhases && f != featureSliding && f != featureInFlight {
			all = append(all, f)
		}
	}
	return all
}

// wordSliding follows a limit that slides.
const wordSliding = "sliding"

func (l Limit) slidingText() string {
	if l.Sliding {
		return " " + wordSliding
	}
	return ""
}

// wrongSliding says what is wrong with a limit that slides, and the way out; nothing if it is valid.
func wrongSliding(l *Limit) (problem, hint string) {
	switch {
	case l.Window <= MaxWindow:
		return fmt.Sprintf("a window of %s does not slide by itself", windowText(l.Window)), "only longer ones do; set shape sliding for a provider's, or half the limit for those of keys"
	case l.Window > day:
		return "a month does not slide", "leave it out, or set a limit of a day"
	case l.Phase != 0:
		return "what slides has no phase", "leave out one of them"
	}
	return "", ""
}

// SlidingParts is in how many parts of time, all as long, the window of a limit that slides is counted.
const SlidingParts = 100

// blurs reports whether the clocks' errors and the time of a call may be as long as a part of time of a limit.
func (p *Policy) blurs(part time.Duration) bool {
	return p.ClockError > part || p.Guard > part || 2*p.ClockError+p.Guard >= part // the first two, so that the sum does not overflow
}

// checkSliding checks that the clocks' errors and the time of a call are less than a part of each sliding limit.
func (p *Policy) checkSliding(errs *problems) {
	for _, of := range []struct {
		field  string
		limits []Limit
	}{{"limits", p.Limits}, {"keys.limits", p.Keys.Limits}} {
		for i, l := range of.limits {
			if !l.Sliding {
				continue
			}
			problem, hint := wrongSliding(&l)
			errs.add(problem != "", fmt.Sprintf("%s[%d].sliding", of.field, i), true, hint, "%s", problem)
			part := l.Window / SlidingParts
			errs.add(problem == "" && p.blurs(part), of.field, l,
				"lower clock_error or guard, or leave sliding out", "twice the clock_error and the guard, %v, must be less than a %dth of a sliding window, %v",
				2*p.ClockError+p.Guard, SlidingParts, part)
		}
	}
}
