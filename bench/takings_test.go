package bench

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkTakings counts the transactions by which 20 instances take permits of long
// limits: for 10 seconds in which their callers want more than there is, and for 10 of
// rest, when they have given back. "most/s" is the most of one instance in any second by the clock, "mean/s" that of
// an instance on average, and "keys" how many a transaction writes.
func BenchmarkTakings(b *testing.B) {
	n, busy, gives, rest := 20, 10*time.Second, 15*time.Second, 10*time.Second
	if testing.Short() {
		n, busy, gives, rest = 4, 2*time.Second, time.Second, time.Second
	}
	for _, text := range []string{"100/s,100000/h", "100/s,100000/h,1000000/d,10000000/mo", "100000/h"} {
		b.Run("limits="+text, func(b *testing.B) {
			limits, err := quota.ParseLimits(text)
			must(b, err)
			policy := quota.Policy{Limits: limits}
			etcd, fleet := startUnder(b, n, policy)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			count := takings(ctx, b, etcd)
			for b.Loop() {
				from := time.Now()
				var callers sync.WaitGroup
				for _, l := range fleet {
					callers.Go(func() {
						for time.Since(from) < busy {
							l.TryTake(quota.MaxPermits)
							letPass(2 * time.Millisecond)
						}
					})
				}
				callers.Wait()
				all := count()
				most, sum, keys := all.between(from, from.Add(busy))
				b.ReportMetric(float64(most), "most/s")
				b.ReportMetric(float64(sum)/float64(n)/busy.Seconds(), "mean/s")
				b.ReportMetric(float64(keys)/float64(max(sum, 1)), "keys")
				letPass(gives + rest)
				_, sum, _ = count().between(from.Add(busy+gives), time.Now())
				b.ReportMetric(float64(sum), "at-rest")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// taking is one transaction, as a watch saw it.
type taking struct {
	at     time.Time
	holder string
	keys   int
}

type listOfTakings []taking

// between returns the most takings of one instance in a second, all of them, and the keys
// that they wrote.
func (all listOfTakings) between(from, to time.Time) (most, sum, keys int) {
	type second struct {
		holder string
		at     int64
	}
	each := map[second]int{}
	for _, t := range all {
		if t.at.Before(from) || !t.at.Before(to) {
			continue
		}
		s := second{t.holder, t.at.Unix()}
		each[s]++
		most, sum, keys = max(most, each[s]), sum+1, keys+t.keys
	}
	return most, sum, keys
}

// takings watches the permits of long limits, and returns what it has seen so far.
func takings(ctx context.Context, b *testing.B, etcd *embedded.Cluster) (count func() listOfTakings) {
	k, err := keys.New(keys.DefaultPrefix)
	must(b, err)
	watch := etcdtest.NewClient(b, etcd).Watch(ctx, k.Budgets("bench"), clientv3.WithPrefix())
	var mu sync.Mutex
	var all listOfTakings
	go func() {
		last := int64(0)
		for w := range watch {
			mu.Lock()
			for _, e := range w.Events {
				if e.Kv.ModRevision != last {
					last = e.Kv.ModRevision
					all = append(all, taking{at: time.Now()})
				}
				t := &all[len(all)-1]
				t.keys++
				if _, holding, ok := strings.Cut(string(e.Kv.Key), "/holdings/"); ok {
					_, t.holder, _ = strings.Cut(holding, "/")
				}
			}
			mu.Unlock()
		}
	}()
	return func() listOfTakings {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clip(all)
	}
}
