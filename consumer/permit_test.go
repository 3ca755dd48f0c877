package consumer_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// A permit can be given back once, as long as it counts, and that costs nothing
// for longer.
func TestReleaseOnce(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/s")
		p.Shape = shape
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			pass(850 * time.Millisecond)
			first, err := l.Take(ctx, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			between := 50 * time.Millisecond
			if shape != quota.ShapeFixed {
				between = 300 * time.Millisecond // no window's end is an end here
			}
			pass(between)
			second, err := l.Take(ctx, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			if !release(l, second) {
				t.Errorf("%s: the later permit is not taken back", shape)
			}
			if !release(l, first) {
				t.Errorf("%s: the earlier permit, which never was given back, is not taken back", shape)
			}
			for _, p := range []consumer.Permit{first, second, {}} {
				if release(l, p) {
					t.Errorf("%s: taken back twice", shape)
				}
			}
			if n := tryTake(l, 100); n != 10 && (shape != quota.ShapeBucket || n != 9) { // a bucket rounds down
				t.Errorf("%s: %d permits after all were given back", shape, n)
			}
		})
	}
	t.Run("memory", func(t *testing.T) {
		p := policyOf(t, "1000000000/s")
		p.Shape = quota.ShapeSliding
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			heap := func() int64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int64(m.HeapAlloc)
			}
			before := heap()
			const times = 50_000
			for range times {
				p, err := l.Take(ctx, 1, 0)
				if err != nil || !release(l, p) {
					t.Fatalf("%v, or not taken back", err)
				}
			}
			for range 5 {
				pass(time.Second)
				if p, err := l.Take(ctx, 1, 0); err != nil || !release(l, p) {
					t.Fatalf("%v, or not taken back", err)
				}
			}
			if after := heap(); after > before+times*4 {
				t.Errorf("%d bytes are kept for each permit that was given back, seconds later", (after-before)/times)
			}
		})
	})
}

// A permit says whether there is time left to use it.
func TestPermitIsValidUntilItsWindowEnds(t *testing.T) {
	bubble(t, policyOf(t, "10/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		pass(300 * time.Millisecond)
		p, err := l.Take(ctx, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after, margin time.Duration
			want          bool
		}{{0, 0, true}, {0, 600 * time.Millisecond, true}, {0, 701 * time.Millisecond, false}, {600 * time.Millisecond, 50 * time.Millisecond, true}, {0, 150 * time.Millisecond, false}, {100 * time.Millisecond, 0, false}} {
			if pass(c.after); valid(p, c.margin) != c.want {
				t.Errorf("%v before its end, with %v on top: valid is %v", time.Until(until(p)), c.margin, !c.want)
			}
		}
		if valid(consumer.Permit{}, 0) {
			t.Error("no permit is valid")
		}
	})
}

// What comes back makes the head of the queue's turn come sooner.
func TestAReleaseBringsTheNextPermitNearer(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/10s")
		p.Shape = shape
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			kept, err := l.Take(ctx, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			tryTake(l, 6)
			head := ask(ctx, l, 8, forever)
			pass(1500 * time.Millisecond)
			if !release(l, kept) {
				t.Error("not taken back")
			}
			foretold := delay(l, 1)
			next := ask(ctx, l, 1, forever)
			// Under bucket what came back counts but for what has accrued since.
			due := map[quota.Shape]time.Duration{quota.ShapeFixed: 10 * time.Second, quota.ShapeSliding: 10*time.Second + 40*time.Millisecond, quota.ShapeBucket: 5600 * time.Millisecond}[shape]
			if a := head.within(20 * time.Second); a.never || a.err != nil || a.after > due {
				t.Errorf("%s: %v, due after %v", shape, a, due)
			}
			if a := next.within(20 * time.Second); a.never || a.err != nil || (a.after-foretold).Abs() > 20*time.Millisecond {
				t.Errorf("%s: the next: %v, foretold was %v", shape, a, foretold)
			}
		})
	}
}
