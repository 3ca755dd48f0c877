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
	open opener
	// parks says that wait blocks, so that each caller needs a goroutine.
	parks bool
}

type opener func(share int64, window time.Duration) (wait func(served func()), done func(), err error)

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

// quotient waits on a limiter of Quotient's.
func quotient(wait func(l *consumer.Limiter, served func())) opener {
	return func(share int64, window time.Duration) (func(func()), func(), error) {
		l, err := open(share, window)
		if err != nil {
			return nil, nil, err
		}
		return func(served func()) { wait(l, served) }, func() { _ = l.Close() }, nil
	}
}

// blocking waits by a call that blocks until there is a permit.
func blocking(limiter func(share int64, window time.Duration) (wait func())) opener {
	return func(share int64, window time.Duration) (func(func()), func(), error) {
		wait := limiter(share, window)
		return func(served func()) { wait(); served() }, func() {}, nil
	}
}

func contenders(ctx context.Context) []contender {
	return []contender{
		{name: "quotient AcquireFunc", ours: true, open: quotient(func(l *consumer.Limiter, served func()) {
			l.AcquireFunc(1, consumer.Forever, func(consumer.Permit, error) { served() })
		})},
		{name: ourParked, ours: true, parks: true, open: quotient(func(l *consumer.Limiter, served func()) {
			_ = l.Acquire(ctx, consumer.Forever)
			served()
		})},
		{name: floorParked, parks: true, open: openBare},
		{name: "LINE, retry in the next window", open: func(share int64, window time.Duration) (func(func()), func(), error) {
			return peers.NewLine(share, window).Call, func() {}, nil
		}},
		{name: "x/time/rate Wait", parks: true, open: blocking(func(share int64, window time.Duration) func() {
			l := rate.NewLimiter(rate.Every(window/time.Duration(share)), 1)
			return func() { _ = l.Wait(ctx) }
		})},
		{name: "uber-ratelimit Take", parks: true, open: blocking(func(share int64, window time.Duration) func() {
			l := ratelimit.New(int(share), ratelimit.Per(window))
			return func() { l.Take() }
		})},
		{name: "juju-ratelimit Wait", parks: true, open: blocking(func(share int64, window time.Duration) func() {
			l := juju.NewBucketWithRate(float64(share)/window.Seconds(), 1)
			return func() { l.Wait(1) }
		})},
		{name: "failsafe-go AcquirePermit", parks: true, open: blocking(func(share int64, window time.Duration) func() {
			l := ratelimiter.NewBursty[any](uint(share), window)
			return func() { _ = l.AcquirePermit(ctx) }
		})},
	}
}
