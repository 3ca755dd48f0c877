// Package moves has the lines of docs/compare.md by which a program changes from another limiter to
// Quotient: before and after, so that both compile.
package moves

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
)

// tooMany is the answer of the program to a customer who has to wait so long.
func tooMany(wait time.Duration) error { return fmt.Errorf("too many requests: again in %v", wait) }

// RedisRate limits each customer by redis_rate.
func RedisRate(ctx context.Context, rdb *redis.Client, customer string) error {
	limiter := redis_rate.NewLimiter(rdb)

	result, err := limiter.Allow(ctx, customer, redis_rate.PerSecond(10))
	if err == nil && result.Allowed == 0 {
		return tooMany(result.RetryAfter)
	}
	return err
}

// Keys limits each customer by a key.
func Keys(ctx context.Context, session *coordinator.Session, customer string) error {
	limiter, err := consumer.Open(ctx, session, "api", consumer.Options{})
	if err != nil {
		return err
	}

	err = limiter.Key(customer).Acquire(ctx, 0)
	if limited, ok := errors.AsType[consumer.LimitError](err); ok {
		return tooMany(max(time.Second, time.Until(limited.RetryAt)))
	}
	return err
}

// TimeRate waits for one of four instances' parts of the limit.
func TimeRate(ctx context.Context) error {
	limiter := rate.NewLimiter(100/4, 1) // 100 a second, by four instances

	return limiter.Wait(ctx)
}

// Session waits for a permit of the fleet.
func Session(ctx context.Context, session *coordinator.Session) error {
	limiter, err := consumer.Open(ctx, session, "api", consumer.Options{})
	if err != nil {
		return err
	}

	return limiter.Wait(ctx)
}

// Key is what Gubernator, in bench/gubernator, becomes.
func Key(ctx context.Context, limiter *consumer.Limiter, customer string) error {
	err := limiter.Key(customer).Acquire(ctx, 0)
	if limited, ok := errors.AsType[consumer.LimitError](err); ok {
		return tooMany(max(time.Second, time.Until(limited.RetryAt)))
	}
	return err
}
