// Command keys measures limits by key: what they cost etcd, memory and time, and whether any
// key goes over its limit. It runs an etcd, and a fleet in one process with a client for each
// instance. Beside it stand x/time/rate in a map, redis_rate and gubernator.
//
//	go run ./keys
//
// It fails if a key of those that callers count is over its limit in any window.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	instances = flag.Int("n", 10, "instances")
	inUse     = flag.Int("keys", 100_000, "keys in use")
	names     = flag.Int("names", 1_000_000, "names that are touched once and forgotten")
	counted   = flag.Int("counted", 1000, "keys whose permits the callers count")
	length    = flag.Duration("for", 10*time.Second, "how long each part lasts")
	only      = flag.String("only", "", "the part to run: in-use, speed, names, counted, lent, long or others; all if it is empty")
)

// The providers, by what is measured of them.
var policies = map[string]quota.Policy{
	"in-use":  policy(200, time.Second, 1_000_000),
	"speed":   policy(quota.MaxPermits/4, time.Minute, 1_000_000),
	"names":   policy(200, 250*time.Millisecond, 20_000),
	"counted": policy(50, time.Second, 1_000_000),
	"equal":   policy(100, time.Second, 1000),
	"owner":   owned(policy(100, time.Second, 1000)),
	"long":    hourly(5000),
	"few":     hourly(50),
}

// policy has a limit that nobody reaches, and one for each key.
func policy(each int64, window time.Duration, most int64) quota.Policy {
	return quota.Policy{
		Limits: []quota.Limit{{Permits: quota.MaxPermits / 2, Window: window}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: each, Window: window}}, Most: most},
	}
}

func main() {
	embedded.RunIfMember()
	flag.Parse()
	over, err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if over {
		fmt.Println("OVER")
		os.Exit(1)
	}
}

// fleet has the limiters of each provider, one of each instance.
type fleet struct {
	client   *clientv3.Client
	limiters map[string][]*consumer.Limiter
	bytes    float64 // for each key in use
}

func run(ctx context.Context) (over bool, err error) {
	cluster, err := embedded.Start(embedded.Options{Processes: true})
	if err != nil {
		return false, err
	}
	defer cluster.Close()
	f, err := join(ctx, cluster)
	if err != nil {
		return false, err
	}
	for _, part := range []struct {
		name string
		run  func(context.Context) (bool, error)
	}{
		{"in-use", f.inUse}, {"speed", f.speed}, {"names", f.names}, {"counted", f.counted}, {"lent", f.lent}, {"long", f.long}, {"others", f.others},
	} {
		if *only != "" && *only != part.name {
			continue
		}
		if beyond, err := part.run(ctx); err != nil || beyond {
			return beyond, err
		}
	}
	return false, nil
}

// join starts the fleet, and waits until all have their shares.
func join(ctx context.Context, cluster *embedded.Cluster) (*fleet, error) {
	client, err := cluster.Client()
	if err != nil {
		return nil, err
	}
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "bench"})
	if err != nil {
		return nil, err
	}
	f, quiet := &fleet{client: client, limiters: map[string][]*consumer.Limiter{}}, slog.New(slog.DiscardHandler)
	for name, p := range policies {
		if _, err := admin.Put(ctx, name, p); err != nil {
			return nil, err
		}
	}
	for i := range *instances {
		c, err := clientv3.New(clientv3.Config{Endpoints: cluster.Endpoints(), DialTimeout: 5 * time.Second, Logger: etcdlog.New(quiet),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(countTransactions)}})
		if err != nil {
			return nil, err
		}
		s, err := coordinator.Join(ctx, c, coordinator.Options{Name: fmt.Sprint("i", i), Logger: quiet})
		if err != nil {
			return nil, err
		}
		for name := range policies {
			l, err := consumer.Open(ctx, s, name, consumer.Options{Logger: quiet})
			if err != nil {
				return nil, err
			}
			f.limiters[name] = append(f.limiters[name], l)
		}
	}
	for _, all := range f.limiters {
		for _, l := range all {
			for l.Status().State != quota.StateActive {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	return f, nil
}

// revision is the number of writes that etcd has had.
func (f *fleet) revision(ctx context.Context) (int64, error) {
	r, err := f.client.Get(ctx, "revision")
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// writes returns how many writes a second etcd has while f runs.
func (f *fleet) writes(ctx context.Context, g func()) (float64, error) {
	before, err := f.revision(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	g()
	after, err := f.revision(ctx)
	return float64(after-before) / time.Since(began).Seconds(), err
}

func keyName(i int) string { return fmt.Sprintf("installation-%07d", i) }

// inUse uses each key each second, on one of the instances.
func (f *fleet) inUse(ctx context.Context) (over bool, err error) {
	rest, err := f.writes(ctx, func() { time.Sleep(*length) })
	if err != nil {
		return false, err
	}
	before, refused := memory(), 0
	busy, err := f.writes(ctx, func() {
		for end := time.Now().Add(*length); time.Now().Before(end); {
			next := time.Now().Truncate(time.Second).Add(time.Second)
			for i := range *inUse {
				if !f.limiters["in-use"][i%*instances].Key(keyName(i)).TryAcquire() {
					refused++
				}
			}
			time.Sleep(time.Until(next))
		}
	})
	after := memory()
	runtime.KeepAlive(f)
	f.bytes = (after - before) / float64(*inUse)
	fmt.Printf("BenchmarkKeysInUse 1 %.2f etcd-writes/s %.2f etcd-writes-at-rest/s\n", busy, rest)
	fmt.Printf("%d instances, %d keys in use: etcd has %.1f writes a second, %.1f at rest; %.0f bytes for a key; %d refused\n",
		*instances, *inUse, busy, rest, f.bytes, refused)
	return false, err
}

// memory returns the bytes in use after a collection.
func memory() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// each returns the time that one call of f takes, of many keys by turn.
func each(f func(i int)) time.Duration {
	const batch = 1 << 14
	calls, began := 0, time.Now()
	for time.Since(began) < *length/5 {
		for i := range batch {
			f((calls + i) % *inUse)
		}
		calls += batch
	}
	return time.Since(began) / time.Duration(calls)
}

func (f *fleet) speed(context.Context) (over bool, err error) {
	l := f.limiters["speed"][0]
	keys, all := make([]consumer.Key, *inUse), make([]string, *inUse)
	for i := range keys {
		all[i] = keyName(i)
		l.Key(all[i]).TryAcquire()
		keys[i] = l.Key(all[i])
	}
	one := l.Key(all[0])
	began := time.Now()
	var counter atomic.Int64
	metric("floor: monotonic read + add", each(func(int) { counter.Add(int64(time.Since(began)) & 1) }), 0)
	metric("quotient, no key", each(func(int) { l.TryAcquire() }), 0)
	metric("quotient, one key", each(func(int) { one.TryAcquire() }), 0)
	metric("quotient, many keys that are kept", each(func(i int) { keys[i].TryAcquire() }), f.bytes)
	metric("quotient, many keys by name", each(func(i int) { l.Key(all[i]).TryAcquire() }), f.bytes)
	return false, nil
}

// metric prints what a permit costs and the bytes of a key, as a line of Go's benchmarks.
func metric(name string, permit time.Duration, bytes float64) {
	fmt.Printf("BenchmarkKeys/by=%s 1 %d ns/permit %.0f B/key\n", strings.ReplaceAll(name, " ", "_"), permit.Nanoseconds(), bytes)
}

// names takes a permit of each of many names, with room for few at a time.
func (f *fleet) names(context.Context) (over bool, err error) {
	l, before, most, full := f.limiters["names"][0], memory(), 0.0, 0
	for i := range *names {
		for {
			err := l.Key(keyName(i)).Acquire(context.Background(), 0)
			if err == nil {
				break
			}
			if !errors.Is(err, consumer.ErrTooManyKeys) {
				return false, err
			}
			full++
			time.Sleep(5 * time.Millisecond)
		}
		if i%(*names/20) == 0 {
			most = max(most, memory()-before)
		}
	}
	fmt.Printf("%d names, of which %d may be in use: %d are kept, at most %.1f MB; %d calls came while there was no room\n",
		*names, policies["names"].Keys.Most, l.Status().KeysInUse, most/1e6, full)
	return false, nil
}

// counted has each instance use the keys as fast as it can. The callers count the permits of
// each key by window.
func (f *fleet) counted(ctx context.Context) (over bool, err error) {
	type of struct {
		key    int
		second int64
	}
	var mu sync.Mutex
	sum, outside := map[of]int64{}, 0
	var all sync.WaitGroup
	end := time.Now().Truncate(time.Second).Add(*length)
	for _, l := range f.limiters["counted"] {
		all.Go(func() {
			own, late := map[of]int64{}, 0
			for time.Now().Before(end) {
				for i := range *counted {
					called := time.Now()
					p := l.Key(keyName(i)).TryTake(5)
					if p.N() == 0 {
						continue
					}
					if called.After(p.Until()) || time.Now().Before(p.Start()) {
						late++
					}
					own[of{i, p.Start().Unix()}] += p.N()
				}
				time.Sleep(10 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			outside += late
			for k, n := range own {
				sum[k] += n
			}
		})
	}
	writes, err := f.writes(ctx, all.Wait)
	if err != nil {
		return false, err
	}
	limit, windows, beyond := policies["counted"].Keys.Limits[0].Permits, 0, 0
	total := int64(0)
	for k, n := range sum {
		if n > limit {
			beyond++
		}
		if k.second < end.Unix()-1 && k.second > end.Add(-*length).Unix() { // whole
			windows++
			total += n
		}
	}
	fmt.Printf("%d keys of %d/s on %d instances: %d windows, %d over the limit, %.1f%% used; %d permits outside their window; etcd has %.1f writes a second\n",
		*counted, limit, *instances, len(sum), beyond, 100*float64(total)/float64(max(1, int64(windows)*limit)), outside, writes)
	fmt.Printf("BenchmarkKeysCounted 1 %d over %d windows %.1f used-%%\n", beyond, len(sum), 100*float64(total)/float64(max(1, int64(windows)*limit)))
	for _, all := range f.limiters {
		for _, l := range all {
			if st := l.Status(); st.OverIssued > 0 {
				return true, errors.New("an instance has noticed permits over its share: " + strconv.FormatInt(st.OverIssued, 10))
			}
		}
	}
	return beyond > 0 || outside > 0, nil
}
