package bench

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkKeyCalls measures a call for a key beside the same call without one, of one goroutine and of
// 1,000, in turns of some ten milliseconds. It reports the shortest turn of each, which a busy machine
// disturbs least; with 1,000 goroutines the median of the spans in which two processors or more made the calls.
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
			turn, of := alone, slices.Min[[]float64]
			if goroutines != "1" {
				turn, of = together, median
			}
			b.Run("call="+c.name+"/goroutines="+goroutines, func(b *testing.B) {
				var plain, key []float64
				missing := func() bool { return len(plain) == 0 || len(key) == 0 }
				for turns := 0; turns < whole(100, 1) || missing() && turns < mostTurns; turns++ {
					plain, key = append(plain, turn(c.plain)...), append(key, turn(c.key)...)
				}
				if missing() {
					b.Fatalf("nothing is measured: in %d turns no two processors were free at once", mostTurns)
				}
				p, k := of(plain), of(key)
				b.ReportMetric(k/p, "of-plain")
				b.ReportMetric(p, "plain-ns/call")
				b.ReportMetric(k, "key-ns/call")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

const (
	turnCalls = 200_000 // calls of one turn, of one goroutine
	mostTurns = 1000    // turns until there are spans in which two processors made the calls: a minute
)

// alone returns the nanoseconds that a call took in one turn.
func alone(call func()) []float64 {
	began := time.Now()
	for range turnCalls {
		call()
	}
	return []float64{float64(time.Since(began).Nanoseconds()) / turnCalls}
}

// together has 1,000 goroutines make calls for 30 ms, and returns the nanoseconds by call of the spans in which two
// processors or more did: where all others together made half as many calls as one goroutine, or more. A goroutine has
// its processor for longer than a span. On a single processor there are none, but what others take of it looks like some.
func together(call func()) (spans []float64) {
	if runtime.GOMAXPROCS(0) == 1 {
		return nil
	}
	const span, part = 4096, 128
	var (
		mu   sync.Mutex // of spans
		wg   sync.WaitGroup
		made atomic.Int64 // calls
	)
	end := time.Now().Add(30 * time.Millisecond)
	for range 1000 {
		wg.Go(func() {
			for began := time.Now(); began.Before(end); began = time.Now() {
				before := made.Load()
				for range span / part {
					for range part {
						call()
					}
					made.Add(part)
				}
				took, n := time.Since(began), made.Load()-before
				if others := n - span; others > span/2 && others < int64(runtime.GOMAXPROCS(0))*span {
					mu.Lock()
					spans = append(spans, float64(took.Nanoseconds())/float64(n))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return spans
}
