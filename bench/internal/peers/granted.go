// Package peers holds what Quotient is compared with inside one process: Go's
// rate limiters, and the algorithm that LINE described for its own.
//
// They promise different things. Token buckets and leaky buckets bound a rate,
// not what a window of the provider's holds; none of them but LINE's is aligned
// to the wall clock, and none shares a limit with other processes.
package peers

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
)

// plenty is a limit that no measurement reaches.
const plenty = 1_000_000_000

// Granted returns the peers' calls that always succeed.
func Granted() ([]measure.Case, error) {
	ctx := context.Background()
	line := NewLine(plenty, time.Second)
	x := rate.NewLimiter(plenty, plenty)
	u := ratelimit.New(plenty)
	j := juju.NewBucketWithRate(plenty, plenty)
	f := ratelimiter.NewBursty[any](plenty, time.Second)
	keyed, err := keyedCases(plenty, time.Second, plenty)
	if err != nil {
		return nil, err
	}
	return append([]measure.Case{
		{Name: "peer=LINE/call=try", Call: func() { line.Try() }},
		{Name: "peer=x-time-rate/call=Allow", Call: func() { x.Allow() }},
		{Name: "peer=x-time-rate/call=Wait", Call: func() { _ = x.Wait(ctx) }},
		{Name: "peer=uber-ratelimit/call=Take", Call: func() { u.Take() }},
		{Name: "peer=juju-ratelimit/call=TakeAvailable", Call: func() { j.TakeAvailable(1) }},
		{Name: "peer=juju-ratelimit/call=Wait", Call: func() { j.Wait(1) }},
		{Name: "peer=failsafe-go/call=TryAcquirePermit", Call: func() { f.TryAcquirePermit() }},
		{Name: "peer=failsafe-go/call=AcquirePermit", Call: func() { _ = f.AcquirePermit(ctx) }},
	}, keyed...), nil
}

// Refused returns the peers' calls that always fail. uber-ratelimit has none:
// its only answer is to wait.
func Refused() ([]measure.Case, error) {
	line := NewLine(0, time.Second)
	x := rate.NewLimiter(rate.Every(time.Hour), 1)
	j := juju.NewBucket(time.Hour, 1)
	f := ratelimiter.NewBursty[any](1, time.Hour)
	x.Allow()
	j.TakeAvailable(1)
	f.TryAcquirePermit()
	keyed, err := keyedCases(1, time.Hour, 0)
	if err != nil {
		return nil, err
	}
	for _, c := range keyed {
		c.Call()
	}
	return append([]measure.Case{
		{Name: "peer=LINE/call=try", Call: func() { line.Try() }},
		{Name: "peer=x-time-rate/call=Allow", Call: func() { x.Allow() }},
		{Name: "peer=juju-ratelimit/call=TakeAvailable", Call: func() { j.TakeAvailable(1) }},
		{Name: "peer=failsafe-go/call=TryAcquirePermit", Call: func() { f.TryAcquirePermit() }},
	}, keyed...), nil
}

// keyedCases are the limiters for a web server: a limit for every key, of which
// there is one here. They do not wait.
func keyedCases(permits int, period time.Duration, burst int) ([]measure.Case, error) {
	const key = "provider"
	ctx := context.Background()
	seth, err := memorystore.New(&memorystore.Config{Tokens: uint64(permits), Interval: period})
	if err != nil {
		return nil, err
	}
	mem, err := memstore.NewCtx(1)
	if err != nil {
		return nil, err
	}
	thr, err := throttled.NewGCRARateLimiterCtx(mem, throttled.RateQuota{
		MaxRate: throttled.PerDuration(permits, period), MaxBurst: burst,
	})
	if err != nil {
		return nil, err
	}
	ulu := limiter.New(memory.NewStore(), limiter.Rate{Period: period, Limit: int64(permits)})
	return []measure.Case{
		{Name: "peer=sethvargo-limiter/call=Take", Call: func() { _, _, _, _, _ = seth.Take(ctx, key) }},
		{Name: "peer=throttled/call=RateLimitCtx", Call: func() { _, _, _ = thr.RateLimitCtx(ctx, key, 1) }},
		{Name: "peer=ulule-limiter/call=Get", Call: func() { _, _ = ulu.Get(ctx, key) }},
	}, nil
}
