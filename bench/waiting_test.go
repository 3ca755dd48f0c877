package bench

import (
	"container/list"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	juju "github.com/juju/ratelimit"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/consumer"
)

// queue is the least that parked goroutines need to be served in order: a channel
// each, in a queue that they can leave. It knows no limits, no deadlines and no
// clock; it is a floor, not a limiter.
type queue struct {
	mu      sync.Mutex
	waiting list.List
}

func (q *queue) wait(ctx context.Context) {
	ch := make(chan struct{}, 1)
	q.mu.Lock()
	place := q.waiting.PushBack(ch)
	q.mu.Unlock()
	select {
	case <-ch:
	case <-ctx.Done():
		q.mu.Lock()
		q.waiting.Remove(place)
		q.mu.Unlock()
	}
}

// serve wakes a share of those that wait at every window's start, until ctx ends.
func (q *queue) serve(ctx context.Context, share int64, window time.Duration) {
	tick := time.NewTicker(window)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		q.mu.Lock()
		for range min(int(share), q.waiting.Len()) {
			q.waiting.Remove(q.waiting.Front()).(chan struct{}) <- struct{}{}
		}
		q.mu.Unlock()
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}

// warm starts and ends n goroutines: the runtime keeps what describes them, and the
// first crowd would pay for all.
func warm(n int) {
	end := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-end })
	}
	close(end)
	all.Wait()
}

// BenchmarkWaiting has 100,000 callers wait at once, of whom a fifth is served in each
// 200 ms. Their memory includes the stacks that those that are served by then have
// left behind. Misplaced are those served in another window than their place in the
// queue demands.
func BenchmarkWaiting(b *testing.B) {
	const window = 200 * time.Millisecond
	n := whole[int64](100_000, 5000)
	share := n / 5
	// Callers have a context that could end, as they have in a program.
	ctx := b.Context()
	warm(int(n))
	blocking := func(wait func()) func(func()) {
		return func(served func()) { wait(); served() }
	}
	for _, c := range []struct {
		name  string
		parks bool // wait blocks, so that each caller needs a goroutine
		open  func(b *testing.B) (wait func(served func()))
	}{
		{"quotient TakeFunc", false, func(b *testing.B) func(func()) {
			l, _ := open(b, limit(share, window))
			return func(served func()) {
				l.TakeFunc(1, consumer.Forever, func(consumer.Permit, error) { served() })
			}
		}},
		{"quotient Acquire", true, func(b *testing.B) func(func()) {
			l, _ := open(b, limit(share, window))
			return blocking(func() { _ = l.Acquire(ctx, consumer.Forever) })
		}},
		{"floor: goroutines on channels", true, func(b *testing.B) func(func()) {
			ctx, cancel := context.WithCancel(ctx)
			b.Cleanup(cancel)
			q := new(queue)
			go q.serve(ctx, share, window)
			return blocking(func() { q.wait(ctx) })
		}},
		{"LINE, retry in the next window", false, func(*testing.B) func(func()) { return newLine(share, window).call }},
		{"x-time-rate Wait", true, func(*testing.B) func(func()) {
			l := rate.NewLimiter(rate.Every(window/time.Duration(share)), 1)
			return blocking(func() { _ = l.Wait(ctx) })
		}},
		{"uber ratelimit Take", true, func(*testing.B) func(func()) {
			l := ratelimit.New(int(share), ratelimit.Per(window))
			return blocking(func() { l.Take() })
		}},
		{"juju ratelimit Wait", true, func(*testing.B) func(func()) {
			l := juju.NewBucketWithRate(float64(share)/window.Seconds(), 1)
			return blocking(func() { l.Wait(1) })
		}},
		{"failsafe-go AcquirePermit", true, func(*testing.B) func(func()) {
			l := ratelimiter.NewBursty[any](uint(share), window)
			return blocking(func() { _ = l.AcquirePermit(ctx) })
		}},
	} {
		b.Run("by="+c.name, func(b *testing.B) {
			for range b.N {
				gather(b, c.parks, c.open(b), n, share)
			}
		})
	}
}

// gather lets n callers wait, of whom share are served in a window.
func gather(b *testing.B, parks bool, wait func(served func()), n, share int64) {
	var place, rank, misplaced atomic.Int64
	var all sync.WaitGroup
	all.Add(int(n))
	one := func() {
		mine := place.Add(1) - 1
		wait(func() {
			if served := rank.Add(1) - 1; served/share != mine/share {
				misplaced.Add(1)
			}
			all.Done()
		})
	}
	before := inUse()
	began, used := time.Now(), cpu()
	for range n {
		if parks {
			go one()
		} else {
			one()
		}
	}
	for place.Load() < n { // until all have asked
		runtime.Gosched()
	}
	asking := cpu() - used
	bytes := (inUse() - before) / float64(max(1, n-rank.Load()))
	used = cpu() // without the collector's
	all.Wait()
	b.ReportMetric(bytes, "B/waiter")
	b.ReportMetric(float64(asking+cpu()-used)/float64(n), "cpu-ns/waiter")
	b.ReportMetric(time.Since(began).Seconds(), "last-s")
	b.ReportMetric(100*float64(misplaced.Load())/float64(n), "misplaced-%")
}

// BenchmarkParked tells the bytes of a goroutine that is parked and is not served.
func BenchmarkParked(b *testing.B) {
	const setting = "adaptivestackstart=0"
	if !strings.Contains(os.Getenv("GODEBUG"), setting) {
		b.Skip("without GODEBUG=" + setting + " a first stack has 2 or 4 kB, by what others used")
	}
	n := whole(50_000, 5000)
	for _, c := range []struct {
		name string
		open func(b *testing.B) (parked func() int, park func(context.Context))
	}{
		{"quotient Acquire", func(b *testing.B) (func() int, func(context.Context)) {
			l, _ := open(b, limit(1, time.Minute))
			l.TryAcquire()
			return func() int { return l.Status().Waiting }, func(ctx context.Context) { _ = l.Acquire(ctx, consumer.Forever) }
		}},
		{"floor: channels in a linked list", func(*testing.B) (func() int, func(context.Context)) {
			q := new(queue)
			return q.len, q.wait
		}},
	} {
		b.Run("by="+c.name, func(b *testing.B) {
			for range b.N {
				parked, park := c.open(b)
				ctx, cancel := context.WithCancel(context.Background())
				warm(n)
				before := inUse()
				var all sync.WaitGroup
				for range n {
					all.Go(func() { park(ctx) })
				}
				until(func() bool { return parked() == n })
				b.ReportMetric((inUse()-before)/float64(n), "B/waiter")
				cancel()
				all.Wait()
			}
		})
	}
}

// BenchmarkMillion queues a million functions on a limiter whose window is spent,
// cancels every third, and has the rest served in the next window, in order.
func BenchmarkMillion(b *testing.B) {
	n := whole(1_000_000, 20_000)
	for range b.N {
		l, _ := open(b, limit(int64(n), 5*time.Second)) // long enough to queue them all
		nextWindow(l)
		l.TryTake(int64(n))
		served := make(chan struct{})
		next, left := 0, n-(n+2)/3 // functions run one after the other
		functions := make([]func(consumer.Permit, error), n)
		for place := range functions {
			functions[place] = func(_ consumer.Permit, err error) {
				if err != nil || place < next {
					b.Errorf("%d after %d: %v", place, next, err)
				}
				next = place
				if left--; left == 0 {
					close(served)
				}
			}
		}
		waiters := make([]consumer.Waiter, n)
		before := inUse()
		for i, f := range functions {
			waiters[i] = l.TakeFunc(1, consumer.Forever, f)
		}
		b.ReportMetric((inUse()-before)/float64(n), "B/waiter")
		runtime.KeepAlive(functions) // they are the callers', and were there before
		used := cpu()
		for i := 0; i < n; i += 3 {
			if !waiters[i].Stop() {
				b.Errorf("waiter %d had been served", i)
			}
		}
		b.ReportMetric(3*float64(cpu()-used)/float64(n), "cancel-cpu-ns/op")
		used = cpu()
		<-served
		b.ReportMetric(1.5*float64(cpu()-used)/float64(n), "serve-cpu-ns/op")
	}
}

// nextWindow returns when the limiter's next window has begun.
func nextWindow(l *consumer.Limiter) {
	letPass(time.Until(l.Status().Shortest().End) + time.Millisecond)
}

// BenchmarkBoundary tells how long after a window's start the first and the last of
// those that waited for it go on, while processors are idle or compute. An idle Go
// process sleeps in whole milliseconds, and a computing goroutine is preempted after
// 10 ms.
func BenchmarkBoundary(b *testing.B) {
	for _, waiters := range []int{1, 1000} {
		for _, busy := range []bool{false, true} {
			b.Run(fmt.Sprintf("waiters=%d/busy=%v", waiters, busy), func(b *testing.B) {
				l, _ := open(b, limit(int64(waiters), 100*time.Millisecond))
				var stop atomic.Bool
				var computing sync.WaitGroup
				for range runtime.GOMAXPROCS(0) {
					computing.Go(func() {
						for busy && !stop.Load() {
							counter.n.Add(1)
						}
					})
				}
				first, last := hdrhistogram.New(1, int64(time.Minute), 3), hdrhistogram.New(1, int64(time.Minute), 3)
				for range b.N * whole(25, 2) {
					nextWindow(l)
					earliest, latest := wave(l, waiters)
					_, _ = first.RecordValue(int64(earliest)), last.RecordValue(int64(latest))
				}
				stop.Store(true)
				computing.Wait()
				for name, h := range map[string]*hdrhistogram.Histogram{"first": first, "last": last} {
					b.ReportMetric(float64(h.ValueAtQuantile(50))/1e3, name+"-p50-µs")
					b.ReportMetric(float64(h.ValueAtQuantile(99))/1e3, name+"-p99-µs")
				}
			})
		}
	}
}

// wave spends the running window, lets n wait, and returns how late after their
// window's start the first and the last of them go on.
func wave(l *consumer.Limiter, n int) (first, last time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	first = time.Hour
	l.TryTake(int64(n))
	for range n {
		all.Go(func() {
			p, _ := l.Take(context.Background(), 1, consumer.Forever)
			late := time.Since(p.Start())
			mu.Lock()
			first, last = min(first, late), max(last, late)
			mu.Unlock()
		})
	}
	all.Wait()
	return first, last
}
