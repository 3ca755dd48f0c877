package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

func TestMain(m *testing.M) {
	embedded.RunIfMember()
	runIfWorker()
	runIfNothing()
	os.Exit(m.Run())
}

// cpu returns the processor time that this process has used. Other processes cannot
// take it away.
func cpu() time.Duration {
	used, _ := child.Used()
	return used
}

// whole returns n, or the small number with -short: whether it works, not how fast it
// is.
func whole[T any](n, small T) T {
	if testing.Short() {
		return small
	}
	return n
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// letPass lets time pass that is measured, or that something takes by the clock.
func letPass(d time.Duration) { <-time.After(d) }

// until waits for a condition, for as long as it takes.
func until(holds func() bool) {
	for !holds() {
		letPass(5 * time.Millisecond)
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// compare measures a call and its floor: the least that any such call could cost. The
// two take turns, a slice each, and the median of their ratios is reported, because a
// shared machine is slower in one minute than in the next.
func compare(b *testing.B, call, floor func()) {
	for _, goroutines := range []int{1, 1000} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			b.ReportAllocs()
			var costs, ratios []float64
			for left := b.N; left > 0; {
				n := min(left, max(4000, 1000*goroutines))
				left -= n
				least := cost(n, goroutines, floor)
				ours := cost(n, goroutines, call)
				costs, ratios = append(costs, ours), append(ratios, ours/max(least, 0.1))
			}
			b.ReportMetric(median(costs), "cpu-ns/op")
			b.ReportMetric(median(ratios), "of-floor")
			b.ReportMetric(0, "ns/op") // the floor is in it
		})
	}
}

// cost returns the nanoseconds of processor time for each of n calls, which are made
// by so many goroutines. Each has its part from the beginning: with RunParallel they
// would contend for a counter.
func cost(n, goroutines int, call func()) float64 {
	before := cpu()
	if goroutines == 1 {
		for range n {
			call()
		}
	} else {
		var all sync.WaitGroup
		for i := range goroutines {
			part := (i+1)*n/goroutines - i*n/goroutines
			all.Go(func() {
				for range part {
					call()
				}
			})
		}
		all.Wait()
	}
	return float64(cpu()-before) / float64(n)
}

// inUse returns the bytes of heap and stacks in use.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// open returns a limiter of a single instance.
func open(b *testing.B, p quota.Policy) (*consumer.Limiter, *consumer.FixedSource) {
	b.Helper()
	source := consumer.Fixed(p)
	l, err := consumer.Open(context.Background(), source, "bench", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	must(b, err)
	b.Cleanup(func() { _ = l.Close() })
	return l, source
}

// limit is a policy of one limit.
func limit(permits int64, window time.Duration) quota.Policy {
	return quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: window}}}
}
