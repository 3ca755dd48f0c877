package bench

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

// BenchmarkChanges measures how soon a fleet of four follows its changes. Each instance has a
// session and a client of etcd of its own, and etcd is a process of its own. Every turn begins at
// the same phase of a window of a second, 100 ms after its start, so what comes with the next window takes
// 900 ms. It reports the shortest and the median turn, in milliseconds:
//
//   - first: from Join on an empty fleet to the first permit.
//   - raise: from the call that sets a higher limit until a caller that waits on each instance has
//     a permit more.
//   - permit, share: from Join of a fifth instance to its first permit, and until it has its share.
//   - leave: from the fifth's Close until the others have its share.
//
// The last three are measured where nobody calls, and where callers of the four take all.
func BenchmarkChanges(b *testing.B) {
	etcd, client := etcdtest.New(b, embedded.Options{Processes: true})
	operator, err := admin.New(client, admin.Options{Author: "bench"})
	must(b, err)
	set := func(b *testing.B, provider string, permits int64) {
		p := limit(permits, time.Second)
		p.Settle, p.ClockError = time.Second, 10*time.Millisecond
		_, err := operator.Put(b.Context(), provider, p)
		must(b, err)
	}
	const fleet = 4
	join := func(b *testing.B, provider string) *member { return join(b, etcdtest.NewClient(b, etcd), provider) }
	joinAll := func(b *testing.B, provider string) (all []*member) {
		for range fleet {
			all = append(all, join(b, provider))
		}
		return all
	}
	turns := whole(10, 1)

	b.Run("change=first", func(b *testing.B) {
		took := durations{}
		for i := range turns {
			provider := fmt.Sprintf("first-%d", i)
			set(b, provider, 1000)
			began := phase()
			m := join(b, provider)
			must(b, m.Acquire(b.Context(), consumer.Forever))
			took.since(began, "")
			m.close(b)
		}
		took.report(b)
	})

	b.Run("change=raise", func(b *testing.B) {
		took := durations{}
		set(b, "raise", fleet)
		all := joinAll(b, "raise")
		until(func() bool { return share(all) == fleet })
		for i := range turns {
			phase()
			var callers sync.WaitGroup
			for _, m := range all {
				for m.TryAcquire() { // all of this window
				}
				callers.Go(func() { _ = m.Acquire(b.Context(), consumer.Forever) })
			}
			for _, m := range all {
				until(func() bool { return m.Status().Waiting == 1 })
			}
			began := time.Now()
			set(b, "raise", fleet*int64(i+2))
			callers.Wait()
			took.since(began, "")
		}
		closeAll(b, all)
		took.report(b)
	})

	for _, load := range []string{"idle", "busy"} {
		b.Run("change=member/load="+load, func(b *testing.B) {
			const permits = 1000
			took := durations{}
			set(b, load, permits)
			all := joinAll(b, load)
			until(func() bool { return share(all) == permits })
			ctx, stop := context.WithCancel(b.Context())
			var callers sync.WaitGroup
			for _, m := range all {
				if load == "busy" {
					callers.Go(func() {
						for m.Acquire(ctx, consumer.Forever) == nil { // all of its share
						}
					})
				}
			}
			for range turns {
				began := phase()
				fifth := join(b, load)
				must(b, fifth.Acquire(b.Context(), consumer.Forever))
				took.since(began, "permit-")
				until(func() bool { return share([]*member{fifth}) == permits/(fleet+1) })
				took.since(began, "share-")
				began = phase()
				fifth.close(b)
				until(func() bool { return share(all) == permits })
				took.since(began, "leave-")
			}
			stop()
			callers.Wait()
			closeAll(b, all)
			took.report(b)
		})
	}
}

// member is one instance.
type member struct {
	*consumer.Limiter
	session *coordinator.Session
}

func join(b *testing.B, client *clientv3.Client, provider string) *member {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	session, err := coordinator.Join(b.Context(), client, coordinator.Options{Name: "bench", Logger: quiet})
	must(b, err)
	l, err := consumer.Open(b.Context(), session, provider, consumer.Options{Logger: quiet})
	must(b, err)
	return &member{Limiter: l, session: session}
}

func (m *member) close(b *testing.B) {
	b.Helper()
	must(b, m.Close())
	must(b, m.session.Close())
}

func closeAll(b *testing.B, all []*member) {
	b.Helper()
	for _, m := range all {
		m.close(b)
	}
}

// share returns the sum of the members' shares.
func share(all []*member) (sum int64) {
	for _, m := range all {
		sum += m.Status().Shortest().Share
	}
	return sum
}

// phase waits for the instant 100 ms after a second's start, and returns it: a window is a second.
func phase() time.Time {
	at := time.Now().Truncate(time.Second).Add(1100 * time.Millisecond)
	letPass(time.Until(at))
	return at
}

// durations are those of the turns, by the prefix of the unit that reports them.
type durations map[string][]time.Duration

func (d durations) since(began time.Time, prefix string) {
	d[prefix] = append(d[prefix], time.Since(began))
}

func (d durations) report(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for prefix, took := range d {
		slices.Sort(took)
		b.ReportMetric(took[0].Seconds()*1000, prefix+"ms")
		b.ReportMetric(took[len(took)/2].Seconds()*1000, prefix+"median-ms")
	}
}
