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

// Three busy instances keep nearly all places taken while each answer of etcd takes 100 ms. They move their places to
// each part of time at about the same time, so that most tries find another's write. What such a try was to give back is
// not lost.
func TestSlowAnswersLoseNoPlaces(t *testing.T) {
	const places, instances, callers = 20, 3, 8
	const call = 500 * time.Millisecond
	inBubble(t, func(t *testing.T, n *network) {
		operator, err := admin.New(n.connect(t), admin.Options{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		limit := quota.Limit{Permits: places, Window: time.Minute, InFlight: true}
		if _, err := operator.Put(t.Context(), provider, quota.Policy{Limits: []quota.Limit{limit}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var begun atomic.Int64
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
			way.delay.Store(int64(100 * time.Millisecond))
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
		for _, session := range sessions {
			_ = session.Close()
		}
	})
}
