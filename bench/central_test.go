package bench

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"

	"github.com/quotient-limiter/quotient/bench/peer"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	callers = 16
	// driveFor is how long they ask, before and after the server is killed.
	driveFor = 1500 * time.Millisecond
)

// take takes one permit; callers have one each.
type take func(context.Context) (bool, error)

// ping is a call that does nothing: the floor of all that ask a Redis.
func ping(c *redis.Client) take {
	return func(ctx context.Context) (bool, error) {
		err := c.Ping(ctx).Err()
		return err == nil, err
	}
}

// fixedWindow counts calls in the running second. The first of a second sets its
// expiry.
func fixedWindow(c *redis.Client) take {
	return func(ctx context.Context) (bool, error) { return increase(ctx, c, 1) }
}

func increase(ctx context.Context, c *redis.Client, by int64) (bool, error) {
	key := "w:" + strconv.FormatInt(time.Now().Unix(), 10)
	n, err := c.IncrBy(ctx, key, by).Result()
	if err == nil && n == by {
		err = c.Expire(ctx, key, 2*time.Second).Err()
	}
	return n <= plenty, err
}

// leases takes fifty permits with one call and hands them out in memory, in the second
// in which they were leased. Each caller has leases of its own, as an instance would.
func leases(c *redis.Client) take {
	left, second := 0, int64(0)
	return func(ctx context.Context) (bool, error) {
		if now := time.Now().Unix(); left == 0 || now != second {
			if ok, err := increase(ctx, c, 50); !ok || err != nil {
				return false, err
			}
			left, second = 50, now
		}
		left--
		return true, nil
	}
}

func sortedSet(c *redis.Client) take {
	return func(ctx context.Context) (bool, error) {
		n, err := peer.SlidingLog.Run(ctx, c, []string{"log"}, plenty, 10_000).Int()
		return n == 1, err
	}
}

func gcra(c *redis.Client) take {
	l := redis_rate.NewLimiter(c)
	return func(ctx context.Context) (bool, error) {
		r, err := l.Allow(ctx, "gcra", redis_rate.Limit{Rate: plenty, Burst: plenty, Period: time.Second})
		return err == nil && r.Allowed > 0, err
	}
}

// throttledRedis compares and swaps the state of its limit, so a caller repeats the call if another
// one was faster.
func throttledRedis(c *redis.Client) take {
	store, err := goredisstore.NewCtx(c, "throttled:")
	if err != nil {
		panic(err) // it has no reason to
	}
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(plenty), MaxBurst: plenty})
	if err != nil {
		panic(err) // the quota is valid
	}
	l.SetMaxCASAttemptsLimit(1000)
	return func(ctx context.Context) (bool, error) {
		over, _, err := l.RateLimitCtx(ctx, "throttled", 1)
		return !over, err
	}
}

// BenchmarkCentral has 16 callers of one process use a limiter that they never
// exhaust: a counter in a redis-server on a unix socket, without network and
// persistence, or a fleet of Quotient. Then the server (Redis, etcd) is killed, and
// they go on.
func BenchmarkCentral(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(*redis.Client) take
	}{{"floor: PING", ping}, {"INCR with expiry", fixedWindow}, {"sorted-set log, Lua", sortedSet}, {"redis_rate GCRA", gcra}, {"throttled, Redis store", throttledRedis}, {"leases of 50, INCRBY", leases}} {
		b.Run("counter="+c.name, func(b *testing.B) {
			server, client := startRedis(b)
			var all []take
			for range callers {
				all = append(all, c.open(client))
			}
			before := redisCPU(b, client)
			permits := drive(b, all, 1, "")
			b.ReportMetric(float64(redisCPU(b, client)-before)/float64(permits), "server-cpu-ns/permit")
			must(b, server.Close())
			drive(b, all, 1, "after-")
		})
	}
	b.Run("counter=gubernator", func(b *testing.B) {
		etcd, _ := etcdtest.New(b, embedded.Options{Processes: true})
		program, err := peer.BuildGubernator(b.Context(), ".", b.TempDir())
		must(b, err)
		daemons, err := peer.StartGubernator(b.Context(), program, 1, 0, etcd.Endpoints())
		must(b, err)
		b.Cleanup(func() { _ = daemons[0].Close() })
		client := peer.NewGubernatorClient(daemons[0].Address, callers)
		all := repeat(callers, func() take {
			return func(ctx context.Context) (bool, error) { return client.Take(ctx, plenty, "NO_BATCHING", "bench") }
		})
		permits := drive(b, all, 1, "")
		b.ReportMetric(float64(daemons[0].Used())/float64(permits), "server-cpu-ns/permit")
		drive(b, all, 1, "after-")
	})
	b.Run("counter=quotient", func(b *testing.B) {
		etcd, fleet := startFleet(b, whole(96, 12), quota.MaxPermits-1)
		var all []take
		for i := range callers {
			l := fleet[i%len(fleet)]
			all = append(all, func(ctx context.Context) (bool, error) {
				err := l.Acquire(ctx, consumer.Forever)
				return err == nil, err
			})
		}
		drive(b, all, 1, "")
		b.ReportMetric(0, "server-cpu-ns/permit")
		must(b, etcd.Kill(0))
		drive(b, all, 1, "after-")
	})
}

// drive has every caller ask again and again, and reports what they got. Reading the
// time around every call is part of it. A call is for so many permits each. Before the server is
// killed, each has taken a permit when the time begins.
func drive(b *testing.B, callers []take, each int64, prefix string) (permits int64) {
	if prefix == "" {
		for i, take := range callers {
			if ok, err := take(b.Context()); !ok || err != nil {
				b.Fatalf("caller %d got no permit: %v", i, err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), whole(driveFor, 100*time.Millisecond))
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	latency, failed := hdrhistogram.New(1, int64(10*time.Second), 2), 0
	began, used := time.Now(), cpu()
	for _, take := range callers {
		all.Go(func() {
			own, failures := hdrhistogram.New(1, int64(10*time.Second), 2), 0
			for ctx.Err() == nil {
				asked := time.Now()
				ok, err := take(ctx)
				switch {
				case err != nil && ctx.Err() == nil:
					failures++
					letPass(time.Millisecond) // as a caller would that retries
				case ok && err == nil:
					_ = own.RecordValue(int64(time.Since(asked)))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			latency.Merge(own)
			failed += failures
		})
	}
	all.Wait()
	permits = latency.TotalCount() * each
	b.ReportMetric(float64(permits)/time.Since(began).Seconds(), prefix+"permits/s")
	if prefix != "" {
		return permits
	}
	if failed > 0 {
		b.Fatalf("%d errors and %d permits", failed, permits)
	}
	b.ReportMetric(float64(cpu()-used)/float64(permits), "cpu-ns/permit")
	b.ReportMetric(float64(latency.ValueAtQuantile(50)), "p50-ns")
	b.ReportMetric(float64(latency.ValueAtQuantile(99)), "p99-ns")
	return permits
}

// startRedis starts a redis-server on a unix socket.
func startRedis(b *testing.B) (*peer.Redis, *redis.Client) {
	b.Helper()
	server, err := peer.StartRedis(b.Context(), b.TempDir())
	must(b, err)
	b.Cleanup(func() { _ = server.Close() })
	client := server.Client(callers)
	b.Cleanup(func() { _ = client.Close() })
	return server, client
}

func redisCPU(b *testing.B, c *redis.Client) time.Duration {
	info, err := c.Info(b.Context(), "cpu").Result()
	must(b, err)
	seconds := 0.0
	for line := range strings.Lines(info) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), ":")
		if k == "used_cpu_sys" || k == "used_cpu_user" {
			f, _ := strconv.ParseFloat(v, 64)
			seconds += f
		}
	}
	return time.Duration(seconds * float64(time.Second))
}
