package worker

import (
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// guardOf returns the guard that an instance has.
func guardOf(p *quota.Policy, st *consumer.Status) time.Duration {
	switch {
	case !p.GuardAuto:
		return p.Guard
	case st.ClockErrorKnown:
		return p.Guard + min(st.ClockError, p.ClockError)
	}
	return p.Guard + p.ClockError
}

// exceeded returns by how much an instance's clock, which wall reads, is further from
// the provider's than its guard; 0 if it is not. The provider's clock is the system's.
// A delay between the readings errs in favour of the instance.
func exceeded(p *quota.Policy, st *consumer.Status, wall func() int64) time.Duration {
	if !config.GuardCovers(p) {
		return 0
	}
	before := time.Now().UnixNano()
	at := wall()
	after := time.Now().UnixNano()
	return max(0, time.Duration(max(before-at, at-after))-guardOf(p, st))
}
