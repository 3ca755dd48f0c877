package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// The floors stand in the same run as what is measured: these machines differ
// by the hour, so ratios are what to read.

var (
	anchor  = time.Now()
	counter atomic.Int64
)

func benchLimiter(b *testing.B, permits int64, outage quota.Outage, more ...quota.Limit) *Limiter {
	b.Helper()
	p := quota.Policy{Limits: append([]quota.Limit{{Permits: permits, Window: time.Minute}}, more...), Outage: outage}
	l, err := Open(b.Context(), Fixed(p), "bench", Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

func benchKeys(b *testing.B, outage quota.Outage) *Limiter {
	b.Helper()
	p := quota.Policy{Outage: outage, Limits: []quota.Limit{{Permits: quota.MaxPermits, Window: time.Minute}}}
	p.Keys.Limits = p.Limits
	l, err := Open(b.Context(), Fixed(p), "bench", Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

func BenchmarkGranted(b *testing.B) {
	hold := benchLimiter(b, quota.MaxPermits, quota.OutageHold)
	stop := benchLimiter(b, quota.MaxPermits, quota.OutageStop)
	day := benchLimiter(b, quota.MaxPermits, quota.OutageHold, quota.Limit{Permits: quota.MaxPermits, Window: 24 * time.Hour})
	unused := benchKeys(b, quota.OutageHold).Key("installation-4711") // made before its first use
	byKey, byKeyStop := benchKeys(b, quota.OutageHold), benchKeys(b, quota.OutageStop)
	for _, l := range []*Limiter{byKey, byKeyStop} {
		l.Key("installation-4711").TryAcquire() // so that it is in use
	}
	key, keyStop := byKey.Key("installation-4711"), byKeyStop.Key("installation-4711")
	reindex := hold.Label("reindex")
	ctx := context.Background()
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"floor=time.Now", func() { _ = time.Now() }},
		{"floor=mono+add", func() { counter.Add(int64(time.Since(anchor)) & 1) }},
		{"floor=now+add", func() { counter.Add(time.Now().UnixNano() & 1) }},
		{"call=TryAcquire/outage=hold", func() { hold.TryAcquire() }},
		{"call=TryAcquire/outage=stop", func() { stop.TryAcquire() }},
		{"call=TryAcquire/outage=hold/limit=day", func() { day.TryAcquire() }},
		{"call=Key.TryAcquire/outage=hold", func() { key.TryAcquire() }},
		{"call=Key.TryAcquire/outage=stop", func() { keyStop.TryAcquire() }},
		{"call=Key.TryAcquire/outage=hold/made=before", func() { unused.TryAcquire() }},
		{"call=Key.TryAcquire/outage=hold/made=each", func() { byKey.Key("installation-4711").TryAcquire() }},
		{"call=TryAcquire/outage=hold/class=critical", func() { hold.Class(Critical).TryAcquire() }},
		{"call=TryAcquire/outage=hold/label=kept", func() { reindex.TryAcquire() }},
		{"call=TryAcquire/outage=hold/label=each", func() { hold.Label("reindex").TryAcquire() }},
		{"call=Acquire/outage=hold", func() { _ = hold.Acquire(ctx, time.Second) }},
		{"call=Take/outage=hold", func() { _, _ = hold.Take(ctx, 1, 0) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.f()
			}
		})
		b.Run(c.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c.f()
				}
			})
		})
	}
}

// Hooks cost only those who wait.
func BenchmarkHooks(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name   string
		waited func(context.Context, time.Duration, error)
	}{
		{"hooks=off", nil},
		{"hooks=on", func(context.Context, time.Duration, error) {}},
	} {
		p := quota.Policy{Limits: []quota.Limit{{Permits: quota.MaxPermits, Window: time.Minute}}}
		l, err := Open(b.Context(), Fixed(p), "bench", Options{Logger: quiet, OnWait: c.waited})
		if err != nil {
			b.Fatal(err)
		}
		b.Run("call=TryAcquire/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.TryAcquire()
			}
		})
		b.Run("call=Acquire/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = l.Acquire(ctx, time.Second)
			}
		})
		_ = l.Close()
	}
}

func BenchmarkRefused(b *testing.B) {
	l := benchLimiter(b, 0, quota.OutageHold)
	ctx := context.Background()
	b.Run("call=TryAcquire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.TryAcquire()
		}
	})
	b.Run("call=Acquire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = l.Acquire(ctx, 0)
		}
	})
}

func BenchmarkLimits(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		var limits []quota.Limit
		for i := range n {
			limits = append(limits, quota.Limit{Permits: quota.MaxPermits, Window: time.Duration(60-i) * time.Second})
		}
		l, err := Open(b.Context(), Fixed(quota.Policy{Limits: limits}), "bench", Options{Logger: quiet})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("limits=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.TryAcquire()
			}
		})
		_ = l.Close()
	}
}

func BenchmarkTakeFuncQueued(b *testing.B) {
	l := benchLimiter(b, 0, quota.OutageHold)
	b.ReportAllocs()
	f := func(Permit, error) {}
	for b.Loop() {
		l.TakeFunc(1, Forever, f)
	}
}
