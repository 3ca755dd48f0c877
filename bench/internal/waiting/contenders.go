package waiting

import (
	"context"
	"log/slog"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/internal/peers"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// contender is a way to wait.
type contender struct {
	name string
	ours bool
	// open returns a function that makes one caller wait, and has served called
	// once it has its permit; and a function that ends the limiter. share permits
	// are issued in each window.
	open func(share int64, window time.Duration) (wait func(served func()), done func(), err error)
	// parks says that wait blocks, so that each caller needs a goroutine.
	parks bool
}

func open(share int64, window time.Duration) (*consumer.Limiter, error) {
	return consumer.Open(context.Background(),
		consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: share, Window: window}}}), "bench",
		consumer.Options{Logger: slog.New(slog.DiscardHandler)})
}

// The ways to park whose bytes are compared.
const (
	ourParked   = "quotient Acquire"
	floorParked = "(floor) goroutines on channels"
	floorLinked = "(floor) goroutines on channels in a linked list"
)

func contenders(ctx context.Context) []contender {
	nothing := func() {}
	return []contender{
		{name: "quotient AcquireFunc", ours: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l, err := open(share, window)
			if err != nil {
				return nil, nil, err
			}
			return func(served func()) {
				l.AcquireFunc(1, consumer.Forever, func(consumer.Permit, error) { served() })
			}, func() { _ = l.Close() }, nil
		}},
		{name: ourParked, ours: true, parks: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l, err := open(share, window)
			if err != nil {
				return nil, nil, err
			}
			return func(served func()) {
				_ = l.Acquire(ctx, consumer.Forever)
				served()
			}, func() { _ = l.Close() }, nil
		}},
		{name: floorParked, parks: true, open: openBare},
		{name: "LINE, retry in the next window", open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l := peers.NewLine(share, window)
			return l.Call, nothing, nil
		}},
		{name: "x/time/rate Wait", parks: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l := rate.NewLimiter(rate.Every(window/time.Duration(share)), 1)
			return func(served func()) { _ = l.Wait(ctx); served() }, nothing, nil
		}},
		{name: "uber-ratelimit Take", parks: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l := ratelimit.New(int(share), ratelimit.Per(window))
			return func(served func()) { l.Take(); served() }, nothing, nil
		}},
		{name: "juju-ratelimit Wait", parks: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l := juju.NewBucketWithRate(float64(share)/window.Seconds(), 1)
			return func(served func()) { l.Wait(1); served() }, nothing, nil
		}},
		{name: "failsafe-go AcquirePermit", parks: true, open: func(share int64, window time.Duration) (func(func()), func(), error) {
			l := ratelimiter.NewBursty[any](uint(share), window)
			return func(served func()) { _ = l.AcquirePermit(ctx); served() }, nothing, nil
		}},
	}
}
