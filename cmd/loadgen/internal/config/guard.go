package config

import (
	"fmt"
	"time"
)

// Guard is the policy's guard, and the clock error that the policy allows.
type Guard struct {
	Fixed time.Duration
	Auto  bool // the clock's error comes on top
	Error time.Duration
}

// Guarded returns the guard that the run's policy has.
func (c *Config) Guarded() Guard {
	return Guard{Fixed: c.policy.Guard, Auto: c.policy.GuardAuto, Error: c.Policy(c.Limits, "").ClockError}
}

// Covers reports whether the guard is to cover the clocks' errors.
func (g Guard) Covers() bool { return g.Auto || g.Fixed > 0 && g.Fixed >= g.Error }

// Unjudged says why arrivals over the limit are not judged, given how far a
// clock was beyond the guard; empty: they are.
func (c *Config) Unjudged(beyond time.Duration) string {
	switch g := c.Guarded(); {
	case c.Shaped():
		return fmt.Sprintf("under shape %s the permits' own times are judged", c.policy.Shape)
	case g.Fixed == 0 && !g.Auto:
		return "there is no guard; --guard auto has them judged"
	case !g.Covers():
		return fmt.Sprintf("the guard of %v does not cover the policy's clock error of %v", g.Fixed, g.Error)
	case beyond > 0:
		return fmt.Sprintf("an instance's clock was %v further from the provider's than its guard covers", beyond)
	}
	return ""
}
