package main

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// guard is the policy's guard, and the clock error that the policy allows.
type guard struct {
	Fixed time.Duration `json:"fixed,omitempty"`
	Auto  bool          `json:"auto,omitempty"` // the clock's error comes on top
	Error time.Duration `json:"error,omitempty"`
}

func (c *config) guarded() guard {
	return guard{Fixed: c.guard, Auto: c.guardAuto, Error: c.policy(c.limits, "").ClockError}
}

// covers reports whether the guard is to cover the clocks' errors.
func (g guard) covers() bool { return g.Auto || g.Fixed > 0 && g.Fixed >= g.Error }

// of returns the guard that an instance has.
func (g guard) of(st *consumer.Status) time.Duration {
	switch {
	case !g.Auto:
		return g.Fixed
	case st.ClockErrorKnown:
		return g.Fixed + min(st.ClockError, g.Error)
	}
	return g.Fixed + g.Error
}

// exceeded returns by how much an instance's clock is further from the provider's
// than its guard; 0 if it is not. The provider is a process of this machine: its
// clock is the system's. wall reads the instance's clock. However long this takes
// between two lines, it errs on the side of the instance.
func (g guard) exceeded(st *consumer.Status, wall func() int64) time.Duration {
	if !g.covers() {
		return 0
	}
	before := time.Now().UnixNano()
	at := wall()
	after := time.Now().UnixNano()
	return max(0, time.Duration(max(before-at, at-after))-g.of(st))
}

// unjudged says why arrivals over the limit are no violation, given how far a
// clock was beyond the guard; empty: they are one.
func (g guard) unjudged(beyond time.Duration) string {
	switch {
	case g.Fixed == 0 && !g.Auto:
		return "there is no guard; --guard auto has them judged"
	case !g.covers():
		return fmt.Sprintf("the guard of %v does not cover the policy's clock error of %v", g.Fixed, g.Error)
	case beyond > 0:
		return fmt.Sprintf("an instance's clock was %v further from the provider's than its guard covers", beyond)
	}
	return ""
}
