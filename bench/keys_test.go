package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/peer"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// keyNames returns the names of all keys.
func keyNames() []string {
	names := make([]string, whole(100_000, 5000))
	for i := range names {
		names[i] = fmt.Sprintf("installation-%07d", i)
	}
	return names
}

// BenchmarkKeys measures what a permit by key costs, of many keys by turn, and the bytes of a key.
// No limit is reached.
func BenchmarkKeys(b *testing.B) {
	names := keyNames()
	limits := []quota.Limit{{Permits: quota.MaxPermits / 4, Window: time.Minute}}
	before := inUse()
	l, _ := open(b, quota.Policy{Limits: limits, Keys: quota.Keys{Limits: limits, Most: 1_000_000}})
	keys := make([]consumer.Key, len(names))
	for i, name := range names {
		keys[i] = l.Key(name)
		keys[i].TryAcquire()
	}
	of := (inUse() - before) / float64(len(names))
	one, began := keys[0], time.Now()
	var counter atomic.Int64
	byKey(b, "floor: monotonic read + add", 0, names, func(int) { counter.Add(int64(time.Since(began)) & 1) })
	byKey(b, "quotient, no key", 0, names, func(int) { l.TryAcquire() })
	byKey(b, "quotient, one key", 0, names, func(int) { one.TryAcquire() })
	byKey(b, "quotient, many keys that are kept", of, names, func(i int) { keys[i].TryAcquire() })
	byKey(b, "quotient, many keys by name", of, names, func(i int) { l.Key(names[i]).TryAcquire() })
	inMap(b, names)
	inRedis(b, names)
	inGubernator(b, names)
}

// byKey measures calls for keys, which are told by their numbers, in turn.
func byKey(b *testing.B, by string, bytes float64, names []string, call func(i int)) {
	b.Run("by="+by, func(b *testing.B) {
		for i := range b.N {
			call(i % len(names))
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/permit")
		b.ReportMetric(bytes, "B/key")
		b.ReportMetric(0, "ns/op")
	})
}

// inMap has an x/time/rate limiter for each key, in a map under a lock. It bounds one process
// only, and forgets nothing.
func inMap(b *testing.B, names []string) {
	var mu sync.RWMutex
	before, all := inUse(), map[string]*rate.Limiter{}
	allow := func(i int) {
		mu.RLock()
		l := all[names[i]]
		mu.RUnlock()
		if l == nil {
			l = rate.NewLimiter(1e9, 1e9)
			mu.Lock()
			all[names[i]] = l
			mu.Unlock()
		}
		l.Allow()
	}
	for i := range names {
		allow(i)
	}
	byKey(b, "x-time-rate in a map", (inUse()-before)/float64(len(names)), names, allow)
}

// inRedis counts all keys in a redis-server on a Unix socket, for one caller.
func inRedis(b *testing.B, names []string) {
	_, client := startRedis(b)
	ctx := b.Context()
	used := func() (n float64) {
		info, err := client.Info(ctx, "memory").Result()
		must(b, err)
		for line := range strings.Lines(info) {
			if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
				n, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
				must(b, err)
			}
		}
		return n
	}
	l, before := redis_rate.NewLimiter(client), used()
	allow := func(i int) {
		_, err := l.Allow(ctx, names[i], redis_rate.Limit{Rate: 100, Burst: 100, Period: time.Hour})
		must(b, err)
	}
	for i := range names {
		allow(i)
	}
	byKey(b, "redis_rate, one caller", (used()-before)/float64(len(names)), names, allow)
}

// inGubernator counts all keys in a daemon of gubernator, for one caller by HTTP, which has no
// batches. It has room for all keys; its default is 50,000.
func inGubernator(b *testing.B, names []string) {
	ctx := b.Context()
	cluster, _ := etcdtest.New(b, embedded.Options{Processes: true})
	program, err := peer.BuildGubernator(ctx, ".", b.TempDir())
	must(b, err)
	daemons, err := peer.StartGubernator(ctx, program, 1, 2*len(names), cluster.Endpoints())
	must(b, err)
	defer daemons[0].Close()
	client := peer.NewGubernatorClient(daemons[0].Address, 1)
	before, err := daemons[0].Live(ctx)
	must(b, err)
	allow := func(some ...string) {
		_, err := client.Take(ctx, 1e9, "NO_BATCHING", some...)
		must(b, err)
	}
	for some := range slices.Chunk(names, 1000) {
		allow(some...)
	}
	after, err := daemons[0].Live(ctx)
	must(b, err)
	byKey(b, "gubernator, one caller", (after-before)/float64(len(names)), names, func(i int) { allow(names[i]) })
}
