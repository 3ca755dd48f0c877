package worker

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

const ms = time.Millisecond

// A clock that is further from the system's than the instance's guard is seen,
// and only that: here clocks are apart by a second, or not at all.
func TestClocksBeyondTheGuardAreSeen(t *testing.T) {
	at := func(apart time.Duration) func() int64 {
		return func() int64 { return time.Now().Add(apart).UnixNano() }
	}
	known := &consumer.Status{ClockError: 30 * ms, ClockErrorKnown: true}
	for _, c := range []struct {
		guard quota.Policy
		st    *consumer.Status
		apart time.Duration
		of    time.Duration // the guard
	}{
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 60 * ms}}, known, time.Second, 60 * ms},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, Guard: 60 * ms}}, known, 0, 60 * ms},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, GuardAuto: true}}, known, -time.Second, 30 * ms},
		{quota.Policy{Timing: quota.Timing{ClockError: 20 * ms, Guard: 5 * ms, GuardAuto: true}}, known, time.Second, 25 * ms},
		{quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, GuardAuto: true}}, &consumer.Status{}, -time.Second, 50 * ms},
	} {
		if got := guardOf(&c.guard, c.st); got != c.of {
			t.Errorf("%+v: a guard of %v, want %v", c.guard, got, c.of)
		}
		// The reading of the clock is between two of the system's, so at the most all
		// of the distance is seen; how much less depends on how busy the machine is.
		got := exceeded(&c.guard, c.st, at(c.apart))
		if most := c.apart.Abs() - c.of; got > max(0, most) || c.apart == 0 && got != 0 {
			t.Errorf("%+v, %v apart: %v", c.guard, c.apart, got)
		}
	}
	if got := exceeded(&quota.Policy{Timing: quota.Timing{ClockError: 50 * ms, GuardAuto: true}}, known, func() int64 { return 0 }); got < time.Hour {
		t.Errorf("a clock in 1970 is %v beyond the guard", got)
	}
	if got := exceeded(&quota.Policy{Timing: quota.Timing{ClockError: 50 * ms}}, known, func() int64 { return 0 }); got != 0 {
		t.Errorf("without a guard: %v", got)
	}
}
