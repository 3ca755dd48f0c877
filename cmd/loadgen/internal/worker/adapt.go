package worker

import (
	"errors"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// listener is a limiter that hears what the provider answers to its calls.
type listener interface{ answered(refused bool) }

// adapted returns an instance's limiter that follows the provider's refusals as the flags
// say, or does not.
func (w *Worker) adapted(l fleetLimiter, part float64) limiter {
	switch w.c.Adapt {
	case config.AdaptNone:
		return struct{ limiter }{l}
	case config.AdaptInstance:
		return &alone{limiter: l, AIMD: load.NewAIMD(time.Now().UnixNano()), share: func() quota.Limit {
			limit := load.Shortest(*w.shared.limits.Load())
			limit.Permits = int64(part * float64(limit.Permits))
			return limit
		}}
	}
	return l
}

// alone is an instance that follows the provider's refusals by itself.
type alone struct {
	limiter
	*load.AIMD
	share func() quota.Limit
}

var errAlone = errors.New("the instance's own part of its share is spent")

func (a *alone) take() (permit, error) {
	if a.Allow(time.Now().UnixNano(), a.share(), 1) == 0 {
		return permit{}, errAlone
	}
	return a.limiter.take()
}

// wait refuses at once: what an instance allows itself is for calls that come.
func (a *alone) wait(_ time.Duration, f func(permit, error)) { f(permit{}, errAlone) }

func (a *alone) answered(refused bool) {
	if refused {
		a.Answered(1, 1)
	} else {
		a.Answered(1, 0)
	}
}
