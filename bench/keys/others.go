package main

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// others measures what else limits by key.
func others(ctx context.Context) (over bool, err error) {
	inMap()
	return false, inRedis(ctx)
}

// inMap has an x/time/rate limiter for each key, in a map under a lock. It bounds one process
// only, and forgets nothing.
func inMap() {
	var mu sync.RWMutex
	all, before := map[string]*rate.Limiter{}, memory()
	allow := func(name string) bool {
		mu.RLock()
		l := all[name]
		mu.RUnlock()
		if l == nil {
			l = rate.NewLimiter(1e9, 1e9)
			mu.Lock()
			all[name] = l
			mu.Unlock()
		}
		return l.Allow()
	}
	keys := make([]string, *inUse)
	for i := range keys {
		keys[i] = keyName(i)
		allow(keys[i])
	}
	after := memory()
	metric("x-time-rate in a map", each(func(i int) { allow(keys[i]) }), (after-before)/float64(*inUse))
}

// inRedis counts all keys in a redis-server on a Unix socket, for one caller.
func inRedis(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := peer.StartRedis(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Close()
	client := server.Client(1)
	defer client.Close()
	used := func() (n float64) {
		info, _ := client.Info(ctx, "memory").Result()
		for line := range strings.Lines(info) {
			if text, ok := strings.CutPrefix(line, "used_memory:"); ok {
				n, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
			}
		}
		return n
	}
	l, before := redis_rate.NewLimiter(client), used()
	var failed error
	allow := func(i int) {
		if _, err := l.Allow(ctx, keyName(i), redis_rate.Limit{Rate: 100, Burst: 100, Period: time.Hour}); err != nil {
			failed = err
		}
	}
	for i := range *inUse {
		allow(i)
	}
	after, left := used(), client.DBSize(ctx).Val()
	metric("redis_rate, one caller", each(allow), (after-before)/float64(max(1, left)))
	return failed
}
