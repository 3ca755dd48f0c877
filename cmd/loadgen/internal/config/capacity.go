package config

import (
	"strings"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// The followers of the provider's refusals.
const (
	AdaptFleet = "fleet" // the policy's pace
	AdaptPause = "pause" // the policy's back-off
	AdaptNone  = "none"
)

// adaptFloor is the floor of an adaptive policy, in percent.
const adaptFloor = 20

// parseCapacity reads CAPACITY,AT=CAPACITY,...
func (c *Config) parseCapacity(text string) error {
	const flag = "--provider-capacity"
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	later, err := parseMoments(flag, "AT=CAPACITY, such as 5s=600/s", parts[1:], c.Duration)
	if err != nil {
		return err
	}
	for _, m := range append([]moment{{Text: parts[0]}}, later...) {
		limits, err := parseLimits(flag, m.Text)
		if err != nil {
			return err
		}
		c.Capacity = append(c.Capacity, load.Takes{At: m.At, Limit: limits[0]})
		if first := c.Capacity[0].Limit; limits[0].Window != first.Window {
			return Usagef("%s: %s has another window than %s: a provider counts by one, so give them the same", flag, limits[0], first)
		}
	}
	if c.Adapt == AdaptFleet {
		c.policy.Adaptive = quota.Adaptive{Floor: adaptFloor}
	}
	return nil
}
