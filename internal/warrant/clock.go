package warrant

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
)

// ClockWrong reports whether the clock was measured to err, perhaps, by more
// than the policies allow, and the bound that was measured: the settle rule's
// proof then says nothing of this instance. A clock that nobody has measured is
// no evidence.
func ClockWrong(r share.Rules, c *clock.Clock) (bound time.Duration, wrong bool) {
	bound, known := c.Measured()
	return bound, known && bound > r.ClockError
}

// guard returns the guard of the windows that run at the instant at. One that
// follows the clock is as large as the error may become until the longest of
// them ends; what is beyond the policy's clock error is an alarm, and not the
// guard's to cover.
func guard(r share.Rules, c *clock.Clock, at clock.Instant) time.Duration {
	if r.GuardAuto == 0 {
		return r.Guard
	}
	bound, known := c.ErrorAt(at.Mono + int64(r.Longest))
	if !known {
		bound = r.GuardAuto
	}
	return r.Guard + min(bound, r.GuardAuto)
}
