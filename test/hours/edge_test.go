package hours_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Three busy instances move what they have of two keys to each part of a sliding limit at the same instant, so that the
// tries of each find the others' writes. All the same each of their callers, which are patient for two seconds, is served,
// and the limit is used.
func TestNobodyIsRefusedAtThePartsOfASlidingLimit(t *testing.T) {
	const callers, parts = 3, 4
	const patience, answers = 2 * time.Second, 20 * time.Millisecond
	keys := quota.Keys{Limits: []quota.Limit{{Permits: 14, Window: time.Second}, {Permits: 5000, Window: 10 * time.Minute, Sliding: true}}}
	part := keys.Limits[1].Window / 100
	inBubble(t, func(t *testing.T, n *network) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 15000, Window: time.Second}}, Keys: keys}
		limiters, leave := lateFleet(t, n, policy, answers, answers+answers/10, answers+answers/5)
		ctx, cancel := context.WithCancel(t.Context())
		var served, refused atomic.Int64
		var calls sync.WaitGroup
		for i, limiter := range limiters {
			for _, key := range []string{"x", "y"} {
				for range callers {
					calls.Go(func() {
						for ctx.Err() == nil {
							switch _, err := limiter.Key(key).Take(ctx, 1, patience); {
							case err == nil:
								served.Add(1)
								pass(answers)
							case ctx.Err() == nil:
								refused.Add(1)
								t.Logf("instance %d, %v after the edge: %v", i, time.Duration(time.Now().UnixNano()%int64(part)), err)
							}
						}
					})
				}
			}
		}
		pass(10 * time.Second)
		pass(time.Until(time.Now().Truncate(part).Add(part + part/2)))
		served.Store(0)
		refused.Store(0)
		pass(parts * part)
		if got, most := served.Load(), 2*14*int64(parts*part/time.Second); got < most*98/100 || refused.Load() > 0 {
			t.Errorf("%d calls are served of %d, and %d refused", got, most, refused.Load())
		}
		cancel()
		calls.Wait()
		leave()
	})
}
