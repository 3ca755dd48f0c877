package hours_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Three busy instances keep nearly all places taken while each answer of etcd takes 100 ms. They move their places to
// each part of time at about the same time, so that most tries find another's write. What such a try was to give back is
// not lost.
func TestSlowAnswersLoseNoPlaces(t *testing.T) {
	const places, callers = 20, 8
	const call, answers = 500 * time.Millisecond, 100 * time.Millisecond
	inBubble(t, func(t *testing.T, n *network) {
		limit := quota.Limit{Permits: places, Window: time.Minute, InFlight: true}
		limiters, leave := lateFleet(t, n, quota.Policy{Limits: []quota.Limit{limit}}, answers, answers, answers)
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int64
		var calls sync.WaitGroup
		for _, limiter := range limiters {
			for range callers {
				calls.Go(func() {
					for ctx.Err() == nil {
						permit, err := limiter.Take(ctx, 1, 2*time.Second)
						if err != nil {
							pass(100 * time.Millisecond)
							continue
						}
						_, done := permit.Begin(ctx)
						begun.Add(1)
						pass(call)
						done()
					}
				})
			}
		}
		pass(20 * time.Second)
		for range 8 {
			begun.Store(0)
			pass(10 * time.Second)
			if got, most := begun.Load(), int64(places*10*time.Second/call); got < most*4/5 {
				t.Errorf("%d calls have begun in 10 s, of %d", got, most)
			}
		}
		cancel()
		calls.Wait()
		leave()
	})
}
