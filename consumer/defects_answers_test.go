package consumer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Each test of this file reproduces a defect of what callers were told, or of what
// could be done with it.

// RetryAt was that of one permit.
func TestRetryAtIsForTheNumberAsked(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		for _, pacing := range []quota.Pacing{quota.PacingOff, quota.PacingEven} {
			if shape != quota.ShapeFixed && pacing != quota.PacingOff {
				continue
			}
			p := policyOf(t, "10/s")
			p.Shape, p.Pacing = shape, pacing
			bubble(t, p, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
				time.Sleep(300 * time.Millisecond)
				tryTake(l, 6)
				for _, n := range []int64{8, 1, 5, 10, 1, 8} {
					for tries := 0; ; tries++ {
						err := takeNow(l, n)
						if err == nil {
							break
						}
						e, ok := limitError(err)
						if !ok || !e.RetryAt.After(time.Now()) {
							t.Fatalf("%s, pacing %s: %d permits: %v, to retry at %v, and now is %v", shape, pacing, n, err, e.RetryAt, time.Now())
						}
						if tries > 0 {
							t.Errorf("%s, pacing %s: %d permits: refused again at RetryAt", shape, pacing, n)
							break
						}
						time.Sleep(time.Until(e.RetryAt))
					}
				}
				// An error that was made for many is not for few.
				tryTake(l, 100)
				many := takeNow(l, 9)
				few := takeNow(l, 1)
				e, _ := limitError(many)
				f, ok := limitError(few)
				if !ok || f.RetryAt.After(e.RetryAt) || shape == quota.ShapeBucket && !f.RetryAt.Before(e.RetryAt) {
					t.Errorf("%s, pacing %s: 9 permits at %v, one at %v", shape, pacing, e.RetryAt, f.RetryAt)
				}
			})
		}
	}
}

// A closed source has no next permit.
func TestDelayAfterTheSourceWasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := fleet(t, policyOf(t, "10/s"), 1).Instances()[0]
		l := open(t, i, consumer.Options{})
		i.Kill()
		for range 3 {
			if d := delay(l, 1); d != math.MaxInt64 {
				t.Errorf("Delay is %v", d)
			}
			time.Sleep(time.Second)
		}
	})
}

// A permit can be given back once, as long as it counts, and that costs nothing
// for longer.
func TestReleaseOnce(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/s")
		p.Shape = shape
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			time.Sleep(850 * time.Millisecond)
			first, err := l.Take(ctx, 4, 0)
			if err != nil {
				t.Fatal(err)
			}
			between := 50 * time.Millisecond
			if shape != quota.ShapeFixed {
				between = 300 * time.Millisecond // no window's end is an end here
			}
			time.Sleep(between)
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
				time.Sleep(time.Second)
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

// The functions of TakeFunc run in order and one by one, those too whose
// arguments were wrong or whose limiter is closed.
func TestFunctionsRunInOrder(t *testing.T) {
	bubble(t, policyOf(t, "2/s"), func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		var ran []int
		running := 0
		f := func(i int) func(consumer.Permit, error) {
			return func(consumer.Permit, error) {
				if running++; running > 1 {
					t.Errorf("function %d runs beside another", i)
				}
				time.Sleep(10 * time.Millisecond)
				ran = append(ran, i)
				running--
			}
		}
		l.TakeFunc(1, 0, f(0))
		l.TakeFunc(0, 0, f(1))
		l.TakeFunc(1, 0, f(2))
		l.TakeFunc(1, 0, f(3))
		l.TakeFunc(-3, time.Second, f(4))
		l.TakeFunc(100, time.Second, f(5))
		l.TakeFunc(0, time.Second, f(6))
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(ran, []int{0, 1, 2, 3, 4, 5, 6}) {
			t.Errorf("ran in the order %v", ran)
		}
	})
}

// FixedSource forgot what it had issued when its last limiter was closed.
func TestAFixedSourceForgetsNothing(t *testing.T) {
	for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
		p := policyOf(t, "10/m")
		p.Shape = shape
		synctest.Test(t, func(t *testing.T) {
			source, got := consumer.Fixed(p), int64(0)
			for range 5 {
				l, err := consumer.Open(t.Context(), source, "p", consumer.Options{Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				got += tryTake(l, 10)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got != 10 {
				t.Errorf("%s: %d of 10 issued", shape, got)
			}
			l := open(t, source, consumer.Options{})
			if a := ask(t.Context(), l, 1, 2*time.Minute).within(2 * time.Minute); a.never || a.err != nil || a.after > 61*time.Second {
				t.Errorf("%s: in the next minute: %v", shape, a)
			}
		})
	}
}

var outside = consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 5, Window: time.Second}}})

// A source that was made outside a bubble has a clock that lies in its future:
// Acquire returned nil without a permit.
func TestASourceFromOutsideTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := consumer.Open(t.Context(), outside, "p", consumer.Options{Logger: quiet})
		if err != nil {
			return // as it should
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := 0
		for range 50 {
			if a := ask(ctx, l, 1, forever).now(); !a.never && a.err == nil {
				got++
			}
		}
		cancel()
		t.Errorf("a limiter whose clock lies in the future: %d permits of 5", got)
	})
}

// nil is an error that names the argument.
func TestNilArguments(t *testing.T) {
	none := context.Context(nil)
	bubble(t, policyOf(t, "10/s"), func(t *testing.T, ctx context.Context, fixed *consumer.FixedSource, l *consumer.Limiter) {
		open := func(ctx context.Context, source consumer.Source) func() error {
			return func() error {
				_, err := consumer.Open(ctx, source, "p", consumer.Options{Logger: quiet})
				return err
			}
		}
		for i, c := range []struct {
			call func() error
			want string
		}{
			{open(ctx, nil), "source is nil"},
			{open(ctx, (*consumer.FixedSource)(nil)), "source is nil"},
			{open(none, fixed), "ctx is nil"},
			{func() error { return l.Acquire(none, 0) }, "ctx is nil"},
			{func() error { return l.Acquire(none, consumer.Forever) }, "ctx is nil"},
			{func() error { return l.Key("a").Acquire(none, 0) }, "ctx is nil"},
			{func() error { return l.Ready(none) }, "ctx is nil"},
		} {
			if err := c.call(); !errors.Is(err, consumer.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("call %d: %v, want ErrInvalid with %q", i, err, c.want)
			}
		}
		l.TakeFunc(10, 0, nil)
		l.TakeFunc(10, time.Second, nil)
		time.Sleep(500 * time.Millisecond)
		if n := tryTake(l, 10); n != 10 {
			t.Errorf("%d of 10 permits are left after requests without a function", n)
		}
	})
}

// A permit says whether there is time left to use it.
func TestPermitIsValidUntilItsWindowEnds(t *testing.T) {
	bubble(t, policyOf(t, "10/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		time.Sleep(300 * time.Millisecond)
		p, err := l.Take(ctx, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after, margin time.Duration
			want          bool
		}{{0, 0, true}, {0, 600 * time.Millisecond, true}, {0, 701 * time.Millisecond, false}, {600 * time.Millisecond, 50 * time.Millisecond, true}, {0, 150 * time.Millisecond, false}, {100 * time.Millisecond, 0, false}} {
			if time.Sleep(c.after); valid(p, c.margin) != c.want {
				t.Errorf("%v before its end, with %v on top: valid is %v", time.Until(until(p)), c.margin, !c.want)
			}
		}
		if valid(consumer.Permit{}, 0) {
			t.Error("no permit is valid")
		}
	})
}

// maxWait bounds the wait, and Delay tells when a permit can be had, where
// permits are paced.
func TestPacedWaitsAreBounded(t *testing.T) {
	for _, limit := range []string{"10/s", "100/s"} {
		p := policyOf(t, limit)
		p.Pacing = quota.PacingEven
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			r := rand.New(rand.NewPCG(1, 2))
			late, wrong := 0, 0
			for range 400 {
				time.Sleep(time.Duration(r.Int64N(int64(30 * time.Millisecond))))
				if d := delay(l, 1); d == 0 && !l.TryAcquire() {
					wrong++
				}
				maxWait := time.Duration(r.Int64N(int64(200 * time.Millisecond)))
				if a := ask(ctx, l, 1, maxWait).within(2 * time.Second); a.never || a.after > maxWait {
					late++
				}
			}
			if late > 0 || wrong > 0 {
				t.Errorf("%s: %d of 400 decided after maxWait, %d refused though Delay was 0", limit, late, wrong)
			}
		})
	}
}

// Delay is as long as the wait where permits accrue.
func TestDelayOfABucket(t *testing.T) {
	for _, limit := range []string{"3000/m", "10/m", "3000/s", "501/s"} {
		p := policyOf(t, limit)
		p.Shape = quota.ShapeBucket
		p.Burst = min(30, p.Limits[0].Permits)
		bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			r := rand.New(rand.NewPCG(1, 3))
			tryTake(l, 30)
			for i := range 60 {
				time.Sleep(time.Duration(r.Int64N(int64(p.Limits[0].Window) / 1000)))
				if r.IntN(3) == 0 {
					tryTake(l, r.Int64N(3))
				}
				d := delay(l, 1)
				maxWait := d + time.Duration(r.IntN(2))*5*time.Millisecond
				if a := ask(ctx, l, 1, maxWait).within(maxWait + time.Second); a.never || a.err != nil {
					t.Errorf("%s: %d: with maxWait %v, Delay was %v: %v", limit, i, maxWait, d, a)
				} else if a.after > d {
					t.Errorf("%s: %d: Delay was %v, and the wait %v", limit, i, d, a.after)
				}
			}
		})
	}
}

// The alarm rang for ever at one instant.
func TestABucketUnderSynctestEnds(t *testing.T) {
	p := policyOf(t, "3000/s")
	p.Shape, p.Burst = quota.ShapeBucket, 30
	bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		for range 100 {
			tryTake(l, 30)
			time.Sleep(delay(l, 1))
			tryTake(l, 30)
			if a := ask(ctx, l, 1, delay(l, 1)).within(time.Second); a.never || a.err != nil {
				t.Error(a)
			}
		}
	})
}

// An error of the first caller was everybody's until the window's end.
func TestLimitErrorsDoNotAge(t *testing.T) {
	p := policyOf(t, "100/10s")
	p.Pacing = quota.PacingEven
	for _, policy := range []quota.Policy{p, policyOf(t, "10/s,20/10s")} {
		bubble(t, policy, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			r := rand.New(rand.NewPCG(1, 4))
			for range 2000 {
				time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
				n := 1 + r.Int64N(3)*r.Int64N(3)
				if e, ok := limitError(takeNow(l, n)); ok && !e.RetryAt.After(time.Now()) {
					t.Fatalf("to be retried at %v, and now is %v", e.RetryAt, time.Now())
				}
			}
		})
	}
}

// The error names the limit that is spent.
func TestTheErrorNamesTheLimitThatIsSpent(t *testing.T) {
	bubble(t, policyOf(t, "10/s,20/10s"), func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		tryTake(l, 10)
		e, ok := limitError(takeNow(l, 1))
		if !ok || e.Window.Length != time.Second || e.Total != 10 || time.Until(e.RetryAt) != time.Second {
			t.Errorf("the second is spent: %+v", e)
		}
		time.Sleep(1500 * time.Millisecond)
		tryTake(l, 10)
		time.Sleep(time.Second)
		e, ok = limitError(takeNow(l, 1))
		if !ok || e.Window.Length != 10*time.Second || e.Total != 20 || time.Until(e.RetryAt) != 7500*time.Millisecond {
			t.Errorf("the ten seconds are spent: %+v", e)
		}
	})
}

// Errors tell the numbers, when to try again, and why there is no share.
func TestErrorsSayWhatHelps(t *testing.T) {
	bubble(t, policyOf(t, "10/s"), func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		tryTake(l, 10)
		want := "consumer: p: no permit: the limit of 10/s has fewer than 2 left; next at 00:00:01.000 UTC"
		if err := takeNow(l, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the role lacks a right")
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		if err := takeNow(l, 1); errors.Is(err, cause) { // a refusal is kept for the next caller
			t.Error(err)
		}
		s.sink.Trouble(cause)
		causes := func(when string, kind error) {
			t.Helper()
			if err := takeNow(l, 1); !errors.Is(err, kind) || !errors.Is(err, cause) || !strings.Contains(err.Error(), cause.Error()) {
				t.Errorf("%s: %v, want %v because of %v", when, err, kind, cause)
			}
		}
		causes("nothing was heard", consumer.ErrLimited)
		p := policyOf(t, "10/s")
		p.Outage = quota.OutageStop
		s.begin(p, 1)
		causes("nothing is proved", consumer.ErrLimited)
		s.prove()
		if err := takeNow(l, 1); err != nil {
			t.Errorf("a share, whatever the trouble: %v", err)
		}
		time.Sleep(time.Minute)
		causes("an outage", consumer.ErrStale)
		s.revision++
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: s.revision, PolicyDeleted: true})
		causes("no policy", consumer.ErrNoPolicy)
	})
}

// While a changed window length settles, the old limit binds, and is shown.
func TestALimitThatStillBindsIsShown(t *testing.T) {
	bubble(t, policyOf(t, "10/10s"), func(t *testing.T, _ context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
		tryTake(l, 9)
		if err := source.Set(policyOf(t, "100/s")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		got := limits(l)
		i := slices.IndexFunc(got, func(u consumer.LimitUse) bool { return u.Limit.Window == 10*time.Second })
		if i < 0 || got[i].Used != 9 || got[i].Left != 1 {
			t.Errorf("the limit that leaves one permit is not shown: %+v", got)
		}
		if n := tryTake(l, 100); n != 1 {
			t.Errorf("%d permits, want 1: the old limit binds for its window", n)
		}
		// It is not shown later, whatever the mode.
		time.Sleep(30 * time.Second)
		paused := policyOf(t, "100/s")
		paused.Mode = quota.ModePause
		if err := source.Set(paused); err != nil {
			t.Fatal(err)
		}
		if got := limits(l); len(got) != 1 || got[0].Limit.Window != time.Second {
			t.Errorf("paused: %+v, want the policy's limit", got)
		}
	})
}
