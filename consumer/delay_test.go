package consumer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

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

// Far deadlines overflowed.
func TestAFarDeadlineIsFarAway(t *testing.T) {
	bubble(t, policyOf(t, "1/s"), func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		time.Sleep(time.Millisecond)
		for name, until := range map[string]func() (context.Context, context.CancelFunc, time.Duration){
			"timeout of 292 years": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithTimeout(ctx, math.MaxInt64)
				return c, f, forever
			},
			"year 9999": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithDeadline(ctx, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
				return c, f, forever
			},
			"maxWait of 292 years": func() (context.Context, context.CancelFunc, time.Duration) { return ctx, func() {}, math.MaxInt64 },
			"nearly that much":     func() (context.Context, context.CancelFunc, time.Duration) { return ctx, func() {}, math.MaxInt64 - 1 },
			"year 9999 and a minute": func() (context.Context, context.CancelFunc, time.Duration) {
				c, f := context.WithDeadline(ctx, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
				return c, f, time.Minute
			},
		} {
			tryTake(l, 1)
			c, cancel, maxWait := until()
			if a := ask(c, l, 1, maxWait).within(3 * time.Second); a.never || a.err != nil {
				t.Errorf("%s: %v", name, a)
			}
			cancel()
		}
		// TakeFunc too.
		tryTake(l, 1)
		result := make(chan error, 1)
		l.TakeFunc(1, math.MaxInt64-1, func(_ consumer.Permit, err error) { result <- err })
		if err := <-result; err != nil {
			t.Error(err)
		}
		for _, end := range []time.Time{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0)} {
			pauseUntil(l, end)
			e, ok := limitError(takeNow(l, 1))
			if !ok || e.Reason != consumer.ReasonPause || !e.RetryAt.IsZero() && e.RetryAt.Before(time.Now().Add(time.Hour)) {
				t.Errorf("paused until %v: %+v, retry at %v", end, e, e.RetryAt)
			}
			r := ask(ctx, l, 1, forever)
			if a := r.within(time.Minute); !a.never {
				t.Errorf("paused until %v: %v", end, a)
			}
			l.Resume()
		}
		if a := ask(ctx, l, 1, time.Second).within(time.Second); a.never || a.err != nil {
			t.Errorf("the pause has ended: %v", a)
		}
	})
}

// A spent long window, or a pause, of more than 64 edges made Delay Forever.
func TestDelayIsKnownBeyondManyEdges(t *testing.T) {
	pause := func(d time.Duration) func(l *consumer.Limiter) {
		return func(l *consumer.Limiter) { pauseUntil(l, time.Now().Add(d)) }
	}
	for name, c := range map[string]struct {
		limits string
		pacing quota.Pacing
		shut   func(l *consumer.Limiter)
		most   time.Duration // that Delay may be later than a minute
	}{
		"a pause":               {"10/100ms", quota.PacingOff, pause(time.Minute), 0},
		"a pause, paced":        {"10/100ms,10000/1m", quota.PacingEven, pause(time.Minute), 2 * slice},
		"a minute spent":        {"10/100ms,8/1m", quota.PacingOff, func(l *consumer.Limiter) { tryTake(l, 8) }, 0},
		"a minute spent, pause": {"10/100ms,8/1m", quota.PacingOff, func(l *consumer.Limiter) { tryTake(l, 8); pause(30 * time.Second)(l) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, c.limits)
			p.Pacing = c.pacing
			bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
				c.shut(l)
				time.Sleep(50 * time.Millisecond)
				for range 3 { // and it stays known from edge to edge
					d, left := delay(l, 1), time.Until(time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC))
					if d < left || d > left+c.most {
						t.Fatalf("Delay is %v, want %v", d, left)
					}
					if a := ask(ctx, l, 1, d-1).within(0); !errors.Is(a.err, consumer.ErrLimited) {
						t.Errorf("with too short a maxWait: %v, want ErrLimited at once", a)
					}
					if a := ask(ctx, l, 1, d); a.within(0).err != nil {
						t.Errorf("a maxWait of Delay: %v, want to wait", a.within(0))
					}
					time.Sleep(10 * time.Second)
				}
				d := delay(l, 1)
				if a := ask(ctx, l, 1, d).within(2 * d); a.never || a.err != nil || a.after > d {
					t.Errorf("%v, foretold was %v", a, d)
				}
			})
		})
	}
}
