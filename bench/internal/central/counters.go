package central

import (
	"context"
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
		{"leases of 50, INCRBY", leases},
	}
}
