package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/time/rate"

	"github.com/quotient-limiter/quotient/bench/peer"
)

// others measures what else limits by key.
func (f *fleet) others(ctx context.Context) (over bool, err error) {
	inMap()
	if err := inRedis(ctx); err != nil {
		return false, err
	}
	return false, inGubernator(ctx, f.client.Endpoints())
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

// inGubernator counts all keys in a daemon of gubernator, for one caller by HTTP, which has no
// batches. It has room for all keys; its default is 50,000.
func inGubernator(ctx context.Context, endpoints []string) error {
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := peer.BuildGubernator(ctx, ".", dir)
	if err != nil {
		return err
	}
	daemons, err := peer.StartGubernator(ctx, program, 1, 2**inUse, endpoints)
	if err != nil {
		return err
	}
	defer daemons[0].Close()
	client := peer.NewGubernatorClient(daemons[0].Address, 1)
	before, err := daemons[0].Live(ctx)
	if err != nil {
		return err
	}
	var failed error
	allow := func(names ...string) {
		if _, err := client.Take(ctx, 1e9, "NO_BATCHING", names...); err != nil {
			failed = err
		}
	}
	all := make([]string, *inUse)
	for i := range all {
		all[i] = keyName(i)
	}
	for some := range slices.Chunk(all, 1000) {
		allow(some...)
	}
	permit := each(func(i int) { allow(all[i]) })
	after, err := daemons[0].Live(ctx)
	metric("gubernator, one caller", permit, (after-before)/float64(*inUse))
	return errors.Join(failed, err)
}
