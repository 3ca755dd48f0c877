package bench

import (
	"context"
	"sync/atomic"
	"testing"
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

	"github.com/quotient-limiter/quotient/quota"
)

var (
	anchor = time.Now()
	// counter has a cache line of its own, as a limiter's counter has.
	counter struct {
		_ [64]byte
		n atomic.Int64
		_ [64]byte
	}
	sink atomic.Int64
)

// The floors: what no limiter that knows the time can be cheaper than. Quotient's rule
// stop reads both clocks.

func readMono() {
	if time.Since(anchor) < 0 {
		sink.Add(1)
	}
}

func readMonoAndAdd() { counter.n.Add(int64(time.Since(anchor)) & 1) }

func readNowAndAdd() { counter.n.Add(time.Now().UnixNano() & 1) }

// plenty is a limit that no measurement reaches.
const plenty = 1_000_000_000

// BenchmarkGranted measures calls that are granted at once.
func BenchmarkGranted(b *testing.B) {
	ctx := context.Background()
	many := limit(quota.MaxPermits, time.Second)
	above := func(floor func()) func(string, func()) {
		return func(name string, call func()) {
			b.Run("call="+name, func(b *testing.B) { compare(b, call, floor) })
		}
	}
	run, runStop := above(readMonoAndAdd), above(readNowAndAdd)
	run("floor: monotonic read + add", readMonoAndAdd)
	runStop("floor: time.Now + add", readNowAndAdd)
	hold, _ := open(b, many)
	run("quotient TryAcquire", func() { hold.TryAcquire() })
	run("quotient Acquire", func() { _ = hold.Acquire(ctx, time.Second) })
	run("quotient Take", func() { _, _ = hold.Take(ctx, 1, 0) })
	stop := many
	stop.Outage = quota.OutageStop
	strict, _ := open(b, stop)
	runStop("quotient TryAcquire, rule stop", func() { strict.TryAcquire() })
	eight := many
	for i := range 7 {
		eight.Limits = append(eight.Limits, quota.Limit{Permits: quota.MaxPermits, Window: time.Duration(2+i) * time.Second})
	}
	eightfold, _ := open(b, eight)
	run("quotient TryAcquire, 8 limits", func() { eightfold.TryAcquire() })
	b.Run("call=quotient TryAcquire, share changes", func(b *testing.B) {
		l, source := open(b, many)
		done := make(chan struct{})
		defer close(done)
		go func() {
			for n := int64(0); ; n++ {
				select {
				case <-done:
					return
				case <-time.After(100 * time.Millisecond):
					_ = source.Set(limit(quota.MaxPermits-n%100, time.Second))
				}
			}
		}()
		compare(b, func() { l.TryAcquire() }, readMonoAndAdd)
	})
	line, x, uber := newLine(plenty, time.Second), rate.NewLimiter(plenty, plenty), ratelimit.New(plenty)
	bucket, safe := juju.NewBucketWithRate(plenty, plenty), ratelimiter.NewBursty[any](plenty, time.Second)
	run("LINE's algorithm", func() { line.try() })
	run("x-time-rate Allow", func() { x.Allow() })
	run("x-time-rate Wait", func() { _ = x.Wait(ctx) })
	run("uber ratelimit Take", func() { uber.Take() })
	run("juju ratelimit TakeAvailable", func() { bucket.TakeAvailable(1) })
	run("juju ratelimit Wait", func() { bucket.Wait(1) })
	run("failsafe-go TryAcquirePermit", func() { safe.TryAcquirePermit() })
	run("failsafe-go AcquirePermit", func() { _ = safe.AcquirePermit(ctx) })
	keyed(b, plenty, time.Second, plenty, run)
}

// BenchmarkRefused measures calls that are refused at once. Uber's limiter has none:
// its only answer is to wait.
func BenchmarkRefused(b *testing.B) {
	ctx := context.Background()
	run := func(name string, call func()) {
		call() // some grant the first one
		b.Run("call="+name, func(b *testing.B) { compare(b, call, readMono) })
	}
	run("floor: monotonic read", readMono)
	none, _ := open(b, limit(0, time.Second))
	run("quotient TryAcquire", func() { none.TryAcquire() })
	run("quotient Acquire, maxWait 0", func() { _ = none.Acquire(ctx, 0) })
	line, x := newLine(0, time.Second), rate.NewLimiter(rate.Every(time.Hour), 1)
	bucket, safe := juju.NewBucket(time.Hour, 1), ratelimiter.NewBursty[any](1, time.Hour)
	run("LINE's algorithm", func() { line.try() })
	run("x-time-rate Allow", func() { x.Allow() })
	run("juju ratelimit TakeAvailable", func() { bucket.TakeAvailable(1) })
	run("failsafe-go TryAcquirePermit", func() { safe.TryAcquirePermit() })
	keyed(b, 1, time.Hour, 0, run)
}

// keyed are the limiters for a web server: a limit for each key, of which there is
// one here. They do not wait.
func keyed(b *testing.B, permits int, period time.Duration, burst int, run func(name string, call func())) {
	const key = "provider"
	ctx := context.Background()
	seth, err := memorystore.New(&memorystore.Config{Tokens: uint64(permits), Interval: period})
	must(b, err)
	run("sethvargo limiter Take", func() { _, _, _, _, _ = seth.Take(ctx, key) })
	store, err := memstore.NewCtx(1)
	must(b, err)
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(permits, period), MaxBurst: burst})
	must(b, err)
	run("throttled RateLimitCtx", func() { _, _, _ = gcra.RateLimitCtx(ctx, key, 1) })
	ulule := limiter.New(memory.NewStore(), limiter.Rate{Period: period, Limit: int64(permits)})
	run("ulule limiter Get", func() { _, _ = ulule.Get(ctx, key) })
}
