package hours_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// Three busy instances move what they have of two keys to each part of a sliding limit at the same instant, so that the
// tries of each find the others' writes. All the same
// each of their callers, which are patient for two seconds, is served, and the limit is used.
func TestNobodyIsRefusedAtThePartsOfASlidingLimit(t *testing.T) {
	const instances, callers, parts = 3, 3, 4
	const patience, answers = 2 * time.Second, 20 * time.Millisecond
	keys := quota.Keys{Limits: []quota.Limit{{Permits: 14, Window: time.Second}, {Permits: 5000, Window: 10 * time.Minute, Sliding: true}}}
	part := keys.Limits[1].Window / 100
	inBubble(t, func(t *testing.T, n *network) {
		operator, err := admin.New(n.connect(t), admin.Options{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operator.Put(t.Context(), provider, quota.Policy{Limits: []quota.Limit{{Permits: 15000, Window: time.Second}}, Keys: keys}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var served, refused atomic.Int64
		var calls sync.WaitGroup
		var sessions []*coordinator.Session
		for i := range instances {
			way := newLine(n)
			session, err := coordinator.Join(ctx, n.connectBy(t, way.dial), coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("hand-%d", i), Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			sessions = append(sessions, session)
			pass(time.Millisecond)
			limiter, err := consumer.Open(ctx, session, provider, consumer.Options{Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			way.delay.Store(int64(answers) + int64(i)*int64(answers)/10)
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
		for _, session := range sessions {
			_ = session.Close()
		}
	})
}
