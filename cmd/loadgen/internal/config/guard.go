package config

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// GuardCovers reports whether a policy's guard is to cover the clocks' errors.
func GuardCovers(p *quota.Policy) bool { return p.GuardAuto || p.Guard > 0 && p.Guard >= p.ClockError }

// Unjudged says why arrivals over the limit are not judged, given how far a
// clock was beyond the guard; empty: they are.
func (c *Config) Unjudged(beyond time.Duration) string {
	switch p := c.Policy(nil, ""); {
	case c.Shaped():
		return fmt.Sprintf("under shape %s the permits' own times are judged", p.Shape)
	case p.Guard == 0 && !p.GuardAuto:
		return "there is no guard; --guard auto has them judged"
	case !GuardCovers(&p):
		return fmt.Sprintf("the guard of %v does not cover the policy's clock error of %v", p.Guard, p.ClockError)
	case beyond > 0:
		return fmt.Sprintf("an instance's clock was %v further from the provider's than its guard covers", beyond)
	}
	return ""
}
