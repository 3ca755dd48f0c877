package consumer

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/warrant"
)

// rulesLocked returns the policies' rules at an instant.
func (k *core) rulesLocked(at clock.Instant) share.Rules {
	return k.mu.warrant.Rules(at.Mono, k.Offset())
}

// clockProblem says in a sentence what is wrong with the clock; empty if nothing
// is known to be.
func (k *core) clockProblem(r share.Rules) string {
	if bound, wrong := warrant.ClockWrong(r, k.clock); wrong {
		return fmt.Sprintf("the clock may be off by %v, more than the policy's clock_error of %v: mend the host's clock, name nearer NTP servers, or raise clock_error",
			bound.Round(time.Millisecond), r.ClockError)
	}
	return k.clock.Health().Problem
}

// noteClock logs when the clock's error exceeds the policy's bound, and when that
// is over, once each.
func (k *core) noteClock(now clock.Instant) {
	k.mu.Lock()
	r := k.rulesLocked(now)
	bound, wrong := warrant.ClockWrong(r, k.clock)
	changed := k.mu.warrant.Started() && wrong != k.mu.clockWrong
	if changed {
		k.mu.clockWrong = wrong
	}
	k.mu.Unlock()
	switch {
	case !changed:
	case wrong:
		k.log.Warn("clock error exceeds the policy's bound", "error", bound, "clock_error", r.ClockError, "outage", string(r.Outage))
	default:
		k.log.Info("clock error is within the policy's bound again", "error", bound, "clock_error", r.ClockError)
	}
}
