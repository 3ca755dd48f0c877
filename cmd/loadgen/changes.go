package main

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// parseLimits reads the limit grammar; an error shows where it went wrong.
func parseLimits(flag, text string) ([]quota.Limit, error) {
	limits, err := quota.ParseLimits(text)
	if err == nil {
		return limits, nil
	}
	if syntax, ok := errors.AsType[*quota.SyntaxError](err); ok {
		return nil, usagef("%s: %v\n%s", flag, err, indent(syntax.Point()))
	}
	return nil, usagef("%s: %q: %v", flag, text, err)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// parseChanges reads AT=LIMIT, each within the run, in order of time.
func parseChanges(texts []string, duration time.Duration) ([]change, error) {
	var changes []change
	for _, text := range texts {
		at, after, err := parseAt("--change", "AT=LIMIT, such as 5s=150000/s", text, duration)
		if err != nil {
			return nil, err
		}
		limits, err := parseLimits("--change", after)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change{at, limits, after})
	}
	sort.SliceStable(changes, func(i, j int) bool { return changes[i].at < changes[j].at })
	for i := 1; i < len(changes); i++ {
		if changes[i].at == changes[i-1].at {
			return nil, usagef("--change: two changes at %v: give each a time of its own", changes[i].at)
		}
	}
	return changes, nil
}

// parseCrashes reads times, each within the run, and puts them in order.
func parseCrashes(texts []string, duration time.Duration) ([]time.Duration, error) {
	var list []time.Duration
	for _, text := range texts {
		at, err := time.ParseDuration(text)
		if err != nil {
			return nil, usagef("--crash: %q is not a time: write one such as 5s or 1m30s", text)
		}
		if at < 0 || at >= duration {
			return nil, usagef("--crash: %v is not within the run: use 0s or more, and less than the --duration of %v", at, duration)
		}
		list = append(list, at)
	}
	slices.Sort(list)
	return list, nil
}

// parseAt reads AT=WHAT, within the run.
func parseAt(flag, form, text string, duration time.Duration) (at time.Duration, what string, err error) {
	before, after, ok := strings.Cut(text, "=")
	if !ok {
		return 0, "", usagef("%s: %q has no = in it: write %s", flag, text, form)
	}
	if at, err = time.ParseDuration(strings.TrimSpace(before)); err != nil {
		return 0, "", usagef("%s: %q in %q is not a time: write one such as 5s or 1m30s", flag, before, text)
	}
	if at < 0 || at >= duration {
		return 0, "", usagef("%s: %v in %q is not within the run: use 0s or more, and less than the --duration of %v", flag, at, text, duration)
	}
	return at, strings.TrimSpace(after), nil
}

// checkPolicies makes sure, before anything runs, that every policy of the run
// is one that instances would apply, and that its permits can be counted.
func (c *config) checkPolicies() error {
	lists := [][]quota.Limit{c.limits}
	for _, ch := range c.changes {
		lists = append(lists, ch.limits)
	}
	if err := load.CheckCountable(lists...); err != nil {
		return usagef("--limit and --change: %v", err)
	}
	for _, limits := range lists {
		policy := c.policy(limits, "").WithDefaults()
		if err := policy.Validate(); err != nil {
			return usagef("the policy of this run would be refused: %v", err)
		}
	}
	return nil
}
