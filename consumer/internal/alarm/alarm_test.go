package alarm

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// A process that stands still after it read the clock sets the alarm too late, and again
// when it goes on: later callers are not delayed.
func TestAnAlarmIsSetAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, reads := time.Now(), 0
		c := clock.Driven(func() clock.Instant {
			now := clock.Instant{Mono: int64(time.Since(began))}
			if reads++; reads == 2 { // the first is the clock's own
				time.Sleep(700 * time.Millisecond)
			}
			return now
		})
		var a Alarm
		rang := make(chan time.Duration, 1)
		a.Begin(func() { rang <- time.Since(began) })
		defer a.Stop()
		a.Set(c, int64(time.Second))
		if got := <-rang; got != time.Second {
			t.Errorf("the alarm for 1s rang at %v", got)
		}
	})
}
