package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// others measures what else limits by key.
func others(ctx context.Context) error {
	inMap()
	return inRedis(ctx)
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
	fmt.Printf("x/time/rate in a map, one process: %v for a permit of many keys, %.0f bytes for a key\n",
		each(func(i int) { allow(keys[i]) }), (after-before)/float64(*inUse))
}

// inRedis counts all keys in a redis-server on a Unix socket, for one caller.
func inRedis(ctx context.Context) error {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("redis_rate: no redis-server; Debian: apt-get install redis-server")
		return nil
	}
	dir, err := os.MkdirTemp("", "keys")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "redis.sock")
	server := exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", socket, //nolint:gosec // in a folder of our own
		"--dir", dir, "--save", "", "--appendonly", "no", "--logfile", filepath.Join(dir, "log"))
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, DisableIdentity: true})
	defer client.Close()
	for client.Ping(ctx).Err() != nil {
		time.Sleep(10 * time.Millisecond)
	}
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
	fmt.Printf("redis_rate, one caller on a Unix socket: %v for a permit, %.0f bytes of Redis for each of the %d keys that have not expired\n",
		each(allow), (after-before)/float64(max(1, left)), left)
	return failed
}
