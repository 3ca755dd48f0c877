package config

import (
	"strings"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// What follows the provider's refusals.
const (
	AdaptFleet    = "fleet"    // the policy, for all instances
	AdaptPause    = "pause"    // the policy's back-off
	AdaptInstance = "instance" // each instance by itself
	AdaptNone     = "none"
)

// parseCapacity reads CAPACITY,AT=CAPACITY,... with the steps in order of time.
func (c *Config) parseCapacity(text string) error {
	const flag = "--provider-capacity"
	if text == "" {
		return nil
	}
	for i, part := range strings.Split(text, ",") {
		step := moment{Text: part}
		if i > 0 {
			list, err := parseMoments(flag, "AT=CAPACITY, such as 5s=600/s", []string{part}, c.Duration)
			if err != nil {
				return err
			}
			step = list[0]
		} else if strings.Contains(part, "=") {
			return Usagef("%s: %q has a time: begin with the first capacity, as in 1000/s,5s=600/s", flag, part)
		}
		limits, err := parseLimits(flag, step.Text)
		if err != nil {
			return err
		}
		takes := load.Takes{At: step.At, Limit: limits[0]}
		if i > 0 {
			if before := c.Capacity[i-1]; takes.At <= before.At {
				return Usagef("%s: %v comes after %v: give the steps in order of time", flag, takes.At, before.At)
			}
			if first := c.Capacity[0].Limit; takes.Limit.Window != first.Window {
				return Usagef("%s: %s has another window than %s: a provider counts by one, so give them the same", flag, takes.Limit, first)
			}
		}
		c.Capacity = append(c.Capacity, takes)
	}
	if c.Adapt == AdaptFleet {
		c.policy.Adaptive = quota.Adaptive{Floor: int64(100 * load.AIMDFloor)}
	}
	return nil
}
