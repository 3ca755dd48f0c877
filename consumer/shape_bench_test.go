package consumer

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

var shapes = []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket}

// measured runs a benchmark and tells, beside its time, how many times that of the
// first one, fixed windows, it is: machines differ by the hour, so the ratio is
// what to read.
func measured(b *testing.B, name string, first *float64, f func()) {
	b.Run(name, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f()
		}
		each := float64(b.Elapsed()) / float64(b.N)
		if *first == 0 {
			*first = each
		}
		b.ReportMetric(each / *first, "x")
	})
}

func shapedLimiter(b *testing.B, shape quota.Shape, permits int64, window time.Duration) *Limiter {
	b.Helper()
	p := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: window}}, Release: quota.Release{Shape: shape}}
	l, err := Open(b.Context(), Fixed(p), "bench", Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// BenchmarkShapes is the price of a shape where many calls fall into one slot of
// time: granted, of more permits than anybody takes, and refused, of ten in a
// window.
func BenchmarkShapes(b *testing.B) {
	for _, c := range []struct {
		name    string
		permits int64
	}{{"granted", quota.MaxPermits}, {"refused", 10}} {
		for _, window := range []time.Duration{time.Second, time.Minute} {
			first := 0.0
			name := fmt.Sprintf("call=%s/window=%v/", c.name, window)
			for _, shape := range shapes {
				l := shapedLimiter(b, shape, c.permits, window)
				measured(b, name+"shape="+string(shape), &first, func() { l.TryAcquire() })
			}
			measured(b, name+"floor=nothing", &first, func() {})
			measured(b, name+"floor=time.Now", &first, func() { _ = time.Now() })
		}
	}
}

// BenchmarkSlots is the price of a call that is the first of its slot: of a 500th
// of a second, with one limit or three, in an instance of a fleet of 96. Who makes
// fewer calls than one a slot pays it for each. Under fixed windows a call costs so
// much that is the first of its window.
func BenchmarkSlots(b *testing.B) {
	second := quota.Limit{Permits: 300_000, Window: time.Second}
	for _, limits := range [][]quota.Limit{
		{second},
		{second, {Permits: 2_000_000, Window: 10 * time.Second}, {Permits: 10_000_000, Window: time.Minute}},
	} {
		first := 0.0
		for _, shape := range shapes {
			k, at := shapedCore(b, shape, limits)
			step := protocol.SlotOf(time.Second)
			if shape == quota.ShapeFixed {
				step = time.Second
			}
			measured(b, fmt.Sprintf("limits=%d/shape=%s", len(limits), shape), &first, func() {
				at = later(at, step)
				if _, v := k.gate.Enter(at, nil, 1, 0, queue.Default); v != queue.Granted {
					b.Fatalf("%s: no permit", shape)
				}
			})
		}
	}
}

func later(at clock.Instant, d time.Duration) clock.Instant {
	return clock.Instant{Mono: at.Mono + int64(d), Wall: at.Wall + int64(d)}
}

// shapedCore returns the core of one of 96 instances, and an instant from which on
// it has its whole share.
func shapedCore(tb testing.TB, shape quota.Shape, limits []quota.Limit) (*core, clock.Instant) {
	tb.Helper()
	k := newCore("bench", clock.New(), Options{Logger: quiet})
	tb.Cleanup(k.Close)
	p := quota.Policy{Limits: limits, Release: quota.Release{Shape: shape}}.WithDefaults()
	v := protocol.View{Revision: 1, Policy: &p, PolicyRevision: 1}
	for i := range 96 {
		v.Instances = append(v.Instances, member(i))
	}
	k.Reset(k.clock.Now(), v.Instances[0].ID, v)
	settled := later(k.clock.Now(), 10*time.Minute)
	k.Prove(settled)
	return k, settled
}

// BenchmarkShapeMemory tells what a limiter takes: "bytes/limiter", and "x" of
// what it takes under fixed windows.
func BenchmarkShapeMemory(b *testing.B) {
	for _, text := range []string{"300000/s", "500/2s,2000/10s,10000/1m"} {
		limits, err := quota.ParseLimits(text)
		if err != nil {
			b.Fatal(err)
		}
		first := 0.0
		for _, shape := range shapes {
			b.Run(fmt.Sprintf("limits=%d/shape=%s", len(limits), shape), func(b *testing.B) {
				held := make([]*Limiter, 0, 1<<10)
				before := heap()
				for b.Loop() {
					if len(held) == cap(held) {
						continue
					}
					l, err := Open(context.Background(), Fixed(quota.Policy{Limits: limits, Release: quota.Release{Shape: shape}}), "bench", Options{Logger: quiet})
					if err != nil {
						b.Fatal(err)
					}
					l.TryAcquire()
					held = append(held, l)
				}
				each := float64(heap()-before) / float64(len(held))
				if first == 0 {
					first = each
				}
				b.ReportMetric(each, "bytes/limiter")
				b.ReportMetric(each/first, "x")
				runtime.KeepAlive(held)
				for _, l := range held {
					_ = l.Close()
				}
			})
		}
	}
}
