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
// disturbs least; with 1,000 goroutines the median of the spans in which two processors or more made the calls, and
// the ratio of whole turns, which is much the larger one where calls wait for each other.
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
			b.Run("call="+c.name+"/goroutines="+goroutines, func(b *testing.B) {
				b.ReportMetric(0, "ns/op")
				var p, k float64
				if goroutines == "1" {
					var plain, key []float64
					for range whole(100, 1) {
						plain, key = append(plain, alone(c.plain)), append(key, alone(c.key))
					}
					p, k = slices.Min(plain), slices.Min(key)
				} else {
					var plain, key crowd
					missing := func() bool { return len(plain.spans) == 0 || len(key.spans) == 0 }
					for turns := 0; turns < whole(100, 1) || missing() && turns < mostTurns; turns++ {
						plain.turn(c.plain)
						key.turn(c.key)
					}
					if missing() {
						b.Fatalf("nothing is measured: in %d turns no two processors were free at once", mostTurns)
					}
					b.ReportMetric(median(key.turns)/median(plain.turns), "turn-of-plain")
					p, k = median(plain.spans), median(key.spans)
				}
				b.ReportMetric(k/p, "of-plain")
				b.ReportMetric(p, "plain-ns/call")
				b.ReportMetric(k, "key-ns/call")
			})
		}
	}
}

const (
	turnCalls = 200_000 // calls of one turn, of one goroutine
	mostTurns = 1000    // turns until there are spans in which two processors made the calls: a minute
)

// alone returns the nanoseconds that a call took in one turn.
func alone(call func()) float64 {
	began := time.Now()
	for range turnCalls {
		call()
	}
	return float64(time.Since(began).Nanoseconds()) / turnCalls
}

// crowd is what was measured of 1,000 goroutines that make calls, in nanoseconds by call.
type crowd struct {
	spans []float64 // those in which two processors or more made the calls
	turns []float64
}

// turn has the goroutines make calls for 30 ms, or until each that had begun has made a few: some calls wait for
// each other. A goroutine has its processor for longer than a span. So two processors made the calls of a span
// if all other goroutines made half as many as this one, or more. On a single processor there are none, but what others
// take of it looks like some.
func (c *crowd) turn(call func()) {
	const turn, span, part = 30 * time.Millisecond, 4096, 128
	var (
		mu   sync.Mutex // of c.spans
		wg   sync.WaitGroup
		made atomic.Int64 // calls
	)
	begun := time.Now()
	for range 1000 {
		wg.Go(func() {
			for began := time.Now(); began.Sub(begun) < turn; began = time.Now() {
				before, own := made.Load(), 0
				for ; own < span && time.Since(begun) < turn; own += part {
					for range part {
						call()
					}
					made.Add(part)
				}
				took, n := time.Since(began), made.Load()-before
				if others := n - span; own == span && runtime.GOMAXPROCS(0) > 1 && others > span/2 && others < int64(runtime.GOMAXPROCS(0))*span {
					mu.Lock()
					c.spans = append(c.spans, float64(took.Nanoseconds())/float64(n))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	c.turns = append(c.turns, float64(time.Since(begun).Nanoseconds())/float64(max(1, made.Load())))
}
