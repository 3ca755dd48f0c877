package bench

import (
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkKeyCalls measures a call for a key beside the same call without one, of one goroutine and of
// 1,000, in turns of some ten milliseconds. It reports the shortest turn of each, which a busy machine
// disturbs least.
func BenchmarkKeyCalls(b *testing.B) {
	much := []quota.Limit{{Permits: quota.MaxPermits / 4, Window: time.Minute}}
	one := []quota.Limit{{Permits: 1, Window: time.Minute}}
	granted, _ := open(b, quota.Policy{Limits: much, Keys: quota.Keys{Limits: much, Most: 10}})
	spent, _ := open(b, quota.Policy{Limits: one, Keys: quota.Keys{Limits: much, Most: 10}})
	keySpent, _ := open(b, quota.Policy{Limits: much, Keys: quota.Keys{Limits: one, Most: 10}})
	key, refused := granted.Key("a"), keySpent.Key("a")
	spent.TryAcquire()
	refused.TryAcquire()
	ctx := b.Context()
	calls := []struct {
		name       string
		plain, key func()
	}{
		{"granted", func() { granted.TryAcquire() }, func() { key.TryAcquire() }},
		{"refused", func() { spent.TryAcquire() }, func() { refused.TryAcquire() }},
		{"Acquire", func() { _ = granted.Acquire(ctx, 0) }, func() { _ = key.Acquire(ctx, 0) }},
		{"Take", func() { _, _ = granted.Take(ctx, 1, 0) }, func() { _, _ = key.Take(ctx, 1, 0) }},
		{"Release", func() { p, _ := granted.Take(ctx, 1, 0); p.Release() }, func() { p, _ := key.Take(ctx, 1, 0); p.Release() }},
	}
	for _, c := range calls {
		for _, goroutines := range []string{"1", "1000"} {
			turn := alone
			if goroutines != "1" {
				turn = together
			}
			b.Run("call="+c.name+"/goroutines="+goroutines, func(b *testing.B) {
				plain, key := time.Hour, time.Hour
				for range whole(100, 1) {
					plain, key = min(plain, turn(c.plain)), min(key, turn(c.key))
				}
				b.ReportMetric(float64(key)/float64(plain), "of-plain")
				b.ReportMetric(float64(plain.Nanoseconds())/turnCalls, "plain-ns/call")
				b.ReportMetric(float64(key.Nanoseconds())/turnCalls, "key-ns/call")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// turnCalls are the calls of one turn.
const turnCalls = 200_000

func alone(call func()) time.Duration {
	began := time.Now()
	for range turnCalls {
		call()
	}
	return time.Since(began)
}

func together(call func()) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for range 1000 {
		wg.Go(func() {
			for range turnCalls / 1000 {
				call()
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
