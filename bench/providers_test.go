package bench

import (
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkProviders starts sessions at once, each with many providers, and an etcd in a
// process of its own. It measures the time until all limiters are active, and what each
// takes at rest. Then two other processes are busy: it counts the limiters that are not
// active at some time.
func BenchmarkProviders(b *testing.B) {
	sessions, providers := whole(10, 3), whole(1000, 50)
	rest, beside := whole(10*time.Second, time.Second), whole(60*time.Second, time.Second)
	b.Run(fmt.Sprintf("sessions=%d/providers=%d", sessions, providers), func(b *testing.B) {
		etcd, client := etcdtest.New(b, embedded.Options{Processes: true})
		names := make([]string, providers)
		for i := range names {
			names[i] = fmt.Sprintf("tenant/%04d", i)
		}
		operator, err := admin.New(client, admin.Options{Author: "bench"})
		must(b, err)
		for some := range slices.Chunk(names, 32) {
			_, err := operator.Update(b.Context(), some, func(old []admin.Stored) (all []*quota.Policy, err error) {
				for range old {
					p := limit(1000, time.Second)
					all = append(all, &p)
				}
				return all, nil
			})
			must(b, err)
		}
		goroutines, memory := runtime.NumGoroutine(), heap()
		began, before := time.Now(), etcdNow(b, etcd)
		fleets := make([][]*consumer.Limiter, sessions)
		var starts errgroup.Group
		for i := range sessions {
			own := etcdtest.NewClient(b, etcd)
			starts.Go(func() error {
				quiet := slog.New(slog.DiscardHandler)
				s, err := coordinator.Join(b.Context(), own, coordinator.Options{Name: fmt.Sprintf("bench-%d", i), Logger: quiet})
				if err != nil {
					return err
				}
				b.Cleanup(func() { _ = s.Close() })
				for _, name := range names {
					l, err := consumer.Open(b.Context(), s, name, consumer.Options{Logger: quiet})
					if err != nil {
						return err
					}
					fleets[i] = append(fleets[i], l)
				}
				return nil
			})
		}
		must(b, starts.Wait())
		all := slices.Concat(fleets...)
		for inactive(all) > 0 {
			letPass(100 * time.Millisecond) // to look takes processor time
		}
		b.ReportMetric(time.Since(began).Seconds(), "s-until-active")
		joined := etcdNow(b, etcd)
		b.ReportMetric(joined.cpu-before.cpu, "etcd-cpu-s-join")
		letPass(rest)
		n := float64(len(all))
		b.ReportMetric((etcdNow(b, etcd).cpu-joined.cpu)/rest.Seconds(), "etcd-cpus-at-rest")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/limiter")
		b.ReportMetric((heap()-memory)/n, "B/limiter")
		lost := 0
		for range 2 {
			busy := exec.Command("sh", "-c", "while :; do :; done")
			must(b, busy.Start())
			defer func() { _, _ = busy.Process.Kill(), busy.Wait() }()
		}
		for end := time.Now().Add(beside); time.Now().Before(end); letPass(time.Second) {
			lost = max(lost, inactive(all))
		}
		b.ReportMetric(float64(lost), "inactive-beside-load")
		b.ReportMetric(0, "ns/op")
	})
}

func inactive(all []*consumer.Limiter) (n int) {
	for _, l := range all {
		if l.Status().State != quota.StateActive {
			n++
		}
	}
	return n
}

func etcdNow(b *testing.B, etcd *embedded.Cluster) reading {
	b.Helper()
	r, err := readEtcd(etcd.Endpoints()[0])
	must(b, err)
	return r
}

// heap returns the bytes in use after a collection.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}
