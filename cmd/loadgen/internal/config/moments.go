package config

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// parseLimits reads the limit grammar; an error shows where it went wrong.
func parseLimits(flag, text string) ([]quota.Limit, error) {
	limits, err := quota.ParseLimits(text)
	if err == nil {
		p := quota.Policy{Limits: limits}.WithDefaults()
		if limits = slices.Concat(protocol.Short(&p), protocol.Long(&p)); strings.HasSuffix(quota.FormatLimits(limits), "/mo") {
			return nil, Usagef("%s: %s: permits are counted by windows of one length, and months differ: use d, a day, or less", flag, text)
		}
		for _, l := range limits {
			switch {
			case l.InFlight:
				return nil, Usagef("%s: %s: permits are counted by the clock's windows, and calls in flight until they end: go run ./examples/llm-client has a provider that counts those", flag, text)
			case l.Phase != 0 || l.Sliding:
				return nil, Usagef("%s: %s: permits are counted by the clock's windows: leave out the phase and sliding, as in %d/%s; --window-offset says when the window ends",
					flag, text, l.Permits, protocol.WindowName(l))
			}
		}
		return limits, nil
	}
	if syntax, ok := errors.AsType[*quota.SyntaxError](err); ok {
		point := strings.ReplaceAll("\n"+strings.TrimRight(syntax.Point(), "\n"), "\n", "\n  ")
		return nil, Usagef("%s: %v%s", flag, err, point)
	}
	return nil, Usagef("%s: %q: %v", flag, text, err)
}

// moment is what happens so long after the measured time began.
type moment struct {
	At   time.Duration
	Text string
}

func (m moment) String() string { return m.At.String() + "=" + m.Text }

// parseMoments reads AT or AT=TEXT, as the form says, each within the run, and puts
// them in order of time.
func parseMoments(flag, form string, texts []string, duration time.Duration) ([]moment, error) {
	var list []moment
	for _, text := range texts {
		before, after, ok := strings.Cut(text, "=")
		if ok != strings.Contains(form, "=") {
			return nil, Usagef("%s: %q is not of the form %s", flag, text, form)
		}
		at, err := time.ParseDuration(strings.TrimSpace(before))
		if err != nil {
			return nil, Usagef("%s: %q in %q is not a time: write one such as 5s or 1m30s", flag, before, text)
		}
		if at < 0 || at >= duration {
			return nil, Usagef("%s: %v in %q is not within the run: use 0s or more, and less than the --duration of %v", flag, at, text, duration)
		}
		list = append(list, moment{at, strings.TrimSpace(after)})
	}
	slices.SortStableFunc(list, func(a, b moment) int { return cmp.Compare(a.At, b.At) })
	return list, nil
}

func (c *Config) parseMoments(changes, faults, crashes []string) error {
	list, err := parseMoments("--change", "AT=LIMIT, such as 5s=150000/s", changes, c.Duration)
	if err != nil {
		return err
	}
	for i, m := range list {
		limits, err := parseLimits("--change", m.Text)
		if err != nil {
			return err
		}
		if i > 0 && m.At == list[i-1].At {
			return Usagef("--change: two changes at %v: give each a time of its own", m.At)
		}
		c.Changes = append(c.Changes, change{m, limits})
	}
	if c.Faults, err = parseMoments("--fault", "AT=FAULT, such as 5s=kill-leader", faults, c.Duration); err != nil {
		return err
	}
	for _, m := range c.Faults {
		if !slices.Contains(faultNames, m.Text) {
			return Usagef("--fault: %q is unknown: use one of %s", m, strings.Join(faultNames, ", "))
		}
	}
	c.Crashes, err = parseMoments("--crash", "AT, such as 5s", crashes, c.Duration)
	return err
}

// faultNames are what can befall the embedded etcd.
var faultNames = []string{"kill-all", "kill-leader", "pause-all", "pause-leader", "restart-all", "resume-all"}

// checkPolicies makes sure, before anything runs, that every policy of the run
// is one that instances would apply, and that its permits can be counted.
func (c *Config) checkPolicies() error {
	lists := c.allLimits()
	if err := load.CheckCountable(lists...); err != nil {
		return Usagef("--limit and --change: %v", err)
	}
	for _, limits := range lists {
		policy := c.Policy(limits, "").WithDefaults()
		if err := policy.Validate(); err != nil {
			return Usagef("the policy of this run would be refused: %v", err)
		}
	}
	return nil
}
