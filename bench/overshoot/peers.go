package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-redis/redis_rate/v10"
	juju "github.com/juju/ratelimit"
	"github.com/redis/go-redis/v9"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	clientv3 "go.etcd.io/etcd/client/v3"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/peer"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
)

// kind is where a limiter's state is.
type kind int

// The kinds of limiters.
const (
	local kind = iota // in the process; it has the limit divided by n
	java              // the same, in Java
	inRedis
	gubernator
	etcd
)

// connections are those of a process to its server: so many that it can make its calls. More of them
// to Redis would make callers of throttled repeat most of their calls.
const connections, gubernatorConnections = 8, 32

// contender is a limiter that is compared.
type contender struct {
	name       string
	kind       kind
	open       func(ctx context.Context, limit int64, server string) (limiter, error)
	waits      bool // take waits
	keepsLimit bool // its limit cannot be changed
	exact      bool // it promises that no second of the clock is over the limit
	shape      string
}

func (p *contender) lanes() int {
	switch p.kind {
	case inRedis:
		return connections
	case gubernator:
		return gubernatorConnections
	default:
		return 1
	}
}

// limit returns the limit that each of n processes is given.
func (p *contender) limit(n int) int64 {
	if p.kind == local || p.kind == java {
		return *limit / int64(n)
	}
	return *limit
}

func find(name string) *contender {
	for _, p := range peers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// A bucket whose size the user chooses holds what accrues in a tenth of a second, unless the name
// says otherwise.
func burst(limit int64) int { return max(1, int(limit/10)) }

var peers = []*contender{
	{name: "quotient", kind: etcd, open: quotient, exact: true},
	{name: "quotient sliding", kind: etcd, open: quotient, exact: true, shape: "sliding"},
	{name: "x-time-rate", open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l := rate.NewLimiter(rate.Limit(n), burst(n))
		return limiter{try(l.Allow), func(n int64) { l.SetLimit(rate.Limit(n)); l.SetBurst(burst(n)) }}, nil
	}},
	{name: "x-time-rate, burst of a second", open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l := rate.NewLimiter(rate.Limit(n), int(n))
		return limiter{try(l.Allow), func(n int64) { l.SetLimit(rate.Limit(n)); l.SetBurst(int(n)) }}, nil
	}},
	{name: "uber ratelimit", waits: true, keepsLimit: true, open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l := uber.New(int(n))
		return limiter{try(func() bool { l.Take(); return true }), nil}, nil
	}},
	{name: "juju ratelimit", keepsLimit: true, open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l := juju.NewBucketWithRate(float64(n), int64(burst(n)))
		return limiter{try(func() bool { return l.TakeAvailable(1) == 1 }), nil}, nil
	}},
	{name: "failsafe-go", keepsLimit: true, open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l := ratelimiter.NewBursty[any](uint(n), time.Second)
		return limiter{try(l.TryAcquirePermit), nil}, nil
	}},
	{name: "sethvargo limiter", keepsLimit: true, open: func(_ context.Context, n int64, _ string) (limiter, error) {
		l, err := memorystore.New(&memorystore.Config{Tokens: uint64(n), Interval: time.Second})
		return limiter{func(ctx context.Context) (bool, error) {
			_, _, _, ok, err := l.Take(ctx, "bench")
			return ok, err
		}, nil}, err
	}},
	{name: "throttled", open: func(_ context.Context, n int64, _ string) (limiter, error) {
		store, err := memstore.NewCtx(1)
		return throttledIn(store, n), err
	}},
	{name: "ulule limiter", open: func(_ context.Context, n int64, _ string) (limiter, error) {
		return ululeIn(memory.NewStore(), n), nil
	}},
	{name: "Guava", kind: java},
	{name: "Bucket4j", kind: java},
	{name: "Resilience4j", kind: java},
	{name: "redis INCR", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		c := peer.RedisClient(server, connections)
		return changeable(n, func(ctx context.Context, n int64) (bool, error) {
			key := "w:" + strconv.FormatInt(time.Now().Unix(), 10)
			got, err := c.Incr(ctx, key).Result()
			if err == nil && got == 1 {
				err = c.Expire(ctx, key, 2*time.Second).Err()
			}
			return got <= n, err
		}), nil
	}},
	{name: "redis sorted-set log", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		c := peer.RedisClient(server, connections)
		return changeable(n, func(ctx context.Context, n int64) (bool, error) {
			got, err := peer.SlidingLog.Run(ctx, c, []string{"log"}, n, 1_000_000).Int()
			return got == 1, err
		}), nil
	}},
	{name: "redis leases of 50", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		return leases(peer.RedisClient(server, connections), n), nil
	}},
	{name: "redis_rate", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		l := redis_rate.NewLimiter(peer.RedisClient(server, connections))
		return changeable(n, func(ctx context.Context, n int64) (bool, error) {
			r, err := l.Allow(ctx, "gcra", redis_rate.PerSecond(int(n)))
			return err == nil && r.Allowed > 0, err
		}), nil
	}},
	{name: "redis throttled", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		store, err := goredisstore.NewCtx(peer.RedisClient(server, connections), "throttled:")
		return throttledIn(store, n), err
	}},
	{name: "redis ulule limiter", kind: inRedis, open: func(_ context.Context, n int64, server string) (limiter, error) {
		store, err := ululeredis.NewStore(peer.RedisClient(server, connections))
		return ululeIn(store, n), err
	}},
	{name: "gubernator", kind: gubernator, open: func(_ context.Context, n int64, server string) (limiter, error) {
		return gubernatorOf(server, n, "BATCHING"), nil
	}},
	{name: "gubernator GLOBAL", kind: gubernator, open: func(_ context.Context, n int64, server string) (limiter, error) {
		return gubernatorOf(server, n, "GLOBAL"), nil
	}},
}

func try(f func() bool) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) { return f(), nil }
}

// changeable is a limiter that is told its limit with each call.
func changeable(n int64, take func(ctx context.Context, n int64) (bool, error)) limiter {
	var limit atomic.Int64
	limit.Store(n)
	return limiter{func(ctx context.Context) (bool, error) { return take(ctx, limit.Load()) }, limit.Store}
}

// throttledIn is a limiter of throttled, whose limit changes by a new one on the same store.
func throttledIn(store throttled.GCRAStoreCtx, n int64) limiter {
	var now atomic.Pointer[throttled.GCRARateLimiterCtx]
	set := func(n int64) {
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(int(n)), MaxBurst: burst(n)})
		if err != nil {
			panic(err) // it refuses limits below 1
		}
		l.SetMaxCASAttemptsLimit(1000)
		now.Store(l)
	}
	set(n)
	return limiter{func(ctx context.Context) (bool, error) {
		over, _, err := now.Load().RateLimitCtx(ctx, "bench", 1)
		return !over, err
	}, set}
}

// ululeIn is a limiter of ulule, whose limit changes by a new one on the same store.
func ululeIn(store ulule.Store, n int64) limiter {
	return changeable(n, func(ctx context.Context, n int64) (bool, error) {
		c, err := ulule.New(store, ulule.Rate{Period: time.Second, Limit: n}).Get(ctx, "bench")
		return !c.Reached, err
	})
}

func gubernatorOf(address string, n int64, behavior string) limiter {
	c := peer.NewGubernatorClient(address, gubernatorConnections)
	return changeable(n, func(ctx context.Context, n int64) (bool, error) { return c.Take(ctx, n, behavior, "bench") })
}

// leases takes 50 calls of the running second from Redis, and hands them out in memory.
func leases(c *redis.Client, n int64) limiter {
	type lease struct{ left, second int64 }
	held := make(chan lease, 1)
	held <- lease{}
	return changeable(n, func(ctx context.Context, n int64) (bool, error) {
		l := <-held
		defer func() { held <- l }()
		if now := time.Now().Unix(); l.left == 0 || now != l.second {
			key := "w:" + strconv.FormatInt(now, 10)
			got, err := c.IncrBy(ctx, key, 50).Result()
			if err == nil && got == 50 {
				err = c.Expire(ctx, key, 2*time.Second).Err()
			}
			if err != nil || got > n {
				return false, err
			}
			l = lease{50, now}
		}
		l.left--
		return true, nil
	})
}

// quotient joins the fleet, and returns when it is active.
func quotient(ctx context.Context, _ int64, server string) (limiter, error) {
	quiet := slog.New(slog.DiscardHandler)
	c, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(server, ","), DialTimeout: 5 * time.Second, Logger: etcdlog.New(quiet)})
	if err != nil {
		return limiter{}, err
	}
	s, err := coordinator.Join(ctx, c, coordinator.Options{Logger: quiet})
	if err != nil {
		return limiter{}, err
	}
	l, err := consumer.Open(ctx, s, "bench", consumer.Options{Logger: quiet})
	if err != nil {
		return limiter{}, err
	}
	if err := l.Ready(ctx); err != nil {
		return limiter{}, errors.Join(err, l.Close())
	}
	return limiter{try(l.TryAcquire), nil}, nil
}
