package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// startFleet starts n instances in this process, each with a session and an etcd
// client of its own, and an etcd in a process of its own. It returns when their shares
// sum to so many permits a second. The settle time and the clock error are shorter
// than the defaults, to save time.
func startFleet(b *testing.B, n int, permits int64) (*embedded.Cluster, []*consumer.Limiter) {
	b.Helper()
	return startUnder(b, n, limit(permits, time.Second))
}

// startUnder is startFleet under a policy.
func startUnder(b *testing.B, n int, policy quota.Policy) (*embedded.Cluster, []*consumer.Limiter) {
	b.Helper()
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true})
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	must(b, err)
	policy.Settle, policy.ClockError = time.Second, 10*time.Millisecond
	_, err = operator.Put(b.Context(), "bench", policy)
	must(b, err)
	quiet := slog.New(slog.DiscardHandler)
	var fleet []*consumer.Limiter
	for i := range n {
		session, err := coordinator.Join(b.Context(), etcdtest.NewClient(b, etcd), coordinator.Options{Name: fmt.Sprintf("bench-%d", i), Logger: quiet})
		must(b, err)
		b.Cleanup(func() { _ = session.Close() })
		l, err := consumer.Open(b.Context(), session, "bench", consumer.Options{Logger: quiet})
		must(b, err)
		fleet = append(fleet, l)
	}
	until(func() bool {
		sum, total := int64(0), int64(0)
		for _, l := range fleet {
			st := l.Status()
			use := st.Shortest()
			if use.Limit.Window > quota.MaxWindow { // taken when it is wanted
				use = consumer.LimitUse{}
			} else if use.Share == 0 { // the others have it all until its own first window
				return false
			}
			if st.State != quota.StateActive || st.Instances != n {
				return false
			}
			sum, total = sum+use.Share, use.Limit.Permits
		}
		return sum == total
	})
	return etcd, fleet
}

// count is what one goroutine was issued, in a cache line of its own.
type count struct {
	n atomic.Int64
	_ [56]byte
}

func total(counts []count) (sum int64) {
	for i := range counts {
		sum += counts[i].n.Load()
	}
	return sum
}

// BenchmarkFleet has a goroutine on each instance ask for one permit after the other,
// for four whole seconds. The processor time is all that this process
// uses, sessions included.
func BenchmarkFleet(b *testing.B) {
	for _, size := range whole([]int{96, 300}, []int{12}) {
		// LINE's limiter went to 2 million permits a second, on 96 machines. The other
		// limit is more than a machine can use.
		for _, permits := range []int64{2_000_000, quota.MaxPermits - 1} {
			b.Run(fmt.Sprintf("instances=%d/limit=%d", size, permits), func(b *testing.B) {
				_, fleet := startFleet(b, size, permits)
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				counts := make([]count, size)
				var all sync.WaitGroup
				for i, l := range fleet {
					all.Go(func() {
						for l.Acquire(ctx, consumer.Forever) == nil {
							counts[i].n.Add(1)
						}
					})
				}
				middle() // the first window is partial
				began, used, before := time.Now(), cpu(), total(counts)
				for range b.N * whole(4, 1) {
					middle()
				}
				issued := float64(total(counts) - before)
				b.ReportMetric(issued/time.Since(began).Seconds(), "permits/s")
				b.ReportMetric(float64(cpu()-used)/max(1, issued), "cpu-ns/permit")
				b.ReportMetric(0, "ns/op")
				cancel()
				all.Wait()
			})
		}
	}
}

// middle returns in the middle of the next second. What a limit allows is issued
// within milliseconds after a window's start, so the sum from middle to middle is that
// of a window.
func middle() {
	now := time.Now()
	letPass(now.Truncate(time.Second).Add(3 * time.Second / 2).Sub(now))
}
