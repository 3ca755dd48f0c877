package worker

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

const ms = time.Millisecond

// A clock that is further from the system's than the instance's guard is seen,
// and only that: here clocks are apart by a second, or not at all.
func TestClocksBeyondTheGuardAreSeen(t *testing.T) {
	at := func(apart time.Duration) func() int64 {
		return func() int64 { return time.Now().Add(apart).UnixNano() }
	}
	guarded := &quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 60 * ms}}
	for _, apart := range []time.Duration{time.Second, 0, -time.Second} {
		// The reading of the clock is between two of the system's, so at the most all
		// of the distance is seen; how much less depends on how busy the machine is.
		got := exceeded(guarded, at(apart))
		if most := apart.Abs() - 60*ms; got > max(0, most) || apart == 0 && got != 0 {
			t.Errorf("%v apart: %v", apart, got)
		}
	}
	if got := exceeded(guarded, func() int64 { return 0 }); got < time.Hour {
		t.Errorf("a clock in 1970 is %v beyond the guard", got)
	}
	if got := exceeded(&quota.Policy{Timing: quota.Timing{ClockError: 50 * ms}}, func() int64 { return 0 }); got != 0 {
		t.Errorf("without a guard: %v", got)
	}
}
