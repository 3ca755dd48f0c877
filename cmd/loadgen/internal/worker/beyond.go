package worker

import (
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/consumer"
)

// guardOf returns the guard that an instance has.
func guardOf(g config.Guard, st *consumer.Status) time.Duration {
	switch {
	case !g.Auto:
		return g.Fixed
	case st.ClockErrorKnown:
		return g.Fixed + min(st.ClockError, g.Error)
	}
	return g.Fixed + g.Error
}

// exceeded returns by how much an instance's clock, which wall reads, is further from
// the provider's than its guard; 0 if it is not. The provider's clock is the system's.
// A delay between the readings errs in favour of the instance.
func exceeded(g config.Guard, st *consumer.Status, wall func() int64) time.Duration {
	if !g.Covers() {
		return 0
	}
	before := time.Now().UnixNano()
	at := wall()
	after := time.Now().UnixNano()
	return max(0, time.Duration(max(before-at, at-after))-guardOf(g, st))
}
