package central

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

// limit is one that no measurement reaches, permits a second.
const limit = 1_000_000_000

// counter is one way to keep a limit in Redis.
type counter struct {
	name string
	// open returns a function that takes one permit, for one instance.
	open func(c *redis.Client) take
}

// fixedWindow counts calls in the running second. The first of a second sets its
// expiry.
func fixedWindow(c *redis.Client) take {
	return func(ctx context.Context) (bool, error) {
		key := "w:" + strconv.FormatInt(time.Now().Unix(), 10)
		n, err := c.Incr(ctx, key).Result()
		if err != nil {
			return false, err
		}
		if n == 1 {
			err = c.Expire(ctx, key, 2*time.Second).Err()
		}
		return n <= limit, err
	}
}

// slidingLog keeps the time of every permit of the last second in a sorted set.
// The set is bounded, so that the script's cost is that of a small log.
var slidingLog = redis.NewScript(`
local now = redis.call('TIME')
local t = now[1] * 1000000 + now[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', t - tonumber(ARGV[2]))
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], t, t .. ':' .. redis.call('INCR', KEYS[1] .. ':n'))
redis.call('PEXPIRE', KEYS[1], 2000)
return 1`)

func sortedSet(c *redis.Client) take {
	return func(ctx context.Context) (bool, error) {
		n, err := slidingLog.Run(ctx, c, []string{"log"}, limit, 10_000).Int()
		return n == 1, err
	}
}

func gcra(c *redis.Client) take {
	l := redis_rate.NewLimiter(c)
	return func(ctx context.Context) (bool, error) {
		r, err := l.Allow(ctx, "gcra", redis_rate.Limit{Rate: limit, Burst: limit, Period: time.Second})
		return err == nil && r.Allowed > 0, err
	}
}

// release gives the lock up if it is still the caller's.
var release = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// bucket is a token bucket that is read and written under a lock: if the interval
// has passed since the last refill, tokens become the maximum; then one is taken.
func bucket(c *redis.Client) take {
	return func(ctx context.Context) (ok bool, err error) {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		end := ctx
		ctx = context.WithoutCancel(ctx) // who is cut short must not leave the lock behind
		owner := rand.Text()
		for {
			won, err := c.SetNX(ctx, "bucket:lock", owner, 5*time.Second).Result()
			if err != nil {
				return false, err
			}
			if won {
				break
			}
			if end.Err() != nil {
				return false, end.Err()
			}
			time.Sleep(100 * time.Microsecond)
		}
		defer func() {
			if e := release.Run(ctx, c, []string{"bucket:lock"}, owner).Err(); err == nil {
				err = e
			}
		}()
		state, err := c.HMGet(ctx, "bucket", "tokens", "filled").Result()
		if err != nil {
			return false, err
		}
		now, tokens := time.Now().UnixMilli(), number(state[0])
		filled := number(state[1])
		if now-filled >= 1000 {
			tokens, filled = limit, now
		}
		if tokens == 0 {
			return false, nil
		}
		return true, c.HSet(ctx, "bucket", "tokens", tokens-1, "filled", filled).Err()
	}
}

func number(v any) int64 {
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

const leased = 50

// leases takes fifty permits with one call and hands them out in memory; they
// are of the second in which they were leased. Every caller has leases of its
// own, as an instance would.
func leases(c *redis.Client) take {
	left, second := 0, int64(0)
	return func(ctx context.Context) (bool, error) {
		now := time.Now().Unix()
		if left > 0 && now == second {
			left--
			return true, nil
		}
		key := "l:" + strconv.FormatInt(now, 10)
		n, err := c.IncrBy(ctx, key, leased).Result()
		if err != nil {
			return false, err
		}
		if n == leased {
			err = c.Expire(ctx, key, 2*time.Second).Err()
		}
		left, second = leased-1, now
		return n <= limit, err
	}
}

func counters() []counter {
	return []counter{
		{"INCR with expiry", fixedWindow},
		{"sorted-set log, Lua", sortedSet},
		{"redis_rate GCRA", gcra},
		{"token bucket under a lock", bucket},
		{"leases of 50, INCRBY", leases},
	}
}
