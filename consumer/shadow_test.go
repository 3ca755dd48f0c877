package consumer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// Shadow mode lets every call pass.
func TestShadowLetsEveryCallPass(t *testing.T) {
	shadow := func(p quota.Policy) quota.Policy { p.Mode = quota.ModeShadow; return p }
	t.Run("each kind of call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := open(t, consumer.Fixed(shadow(policyOf(t, "10/s"))), consumer.Options{MaxWaiters: 1})
			for _, n := range []int64{10, 1, 1, 11, 1000} { // spent after the first
				result := make(chan error, 1)
				l.TakeFunc(n, time.Second, func(_ consumer.Permit, err error) { result <- err })
				synctest.Wait()
				select {
				case err := <-result:
					if err != nil {
						t.Errorf("TakeFunc(%d): %v", n, err)
					}
				default:
					t.Errorf("TakeFunc(%d) waits", n)
				}
				for _, maxWait := range []time.Duration{0, time.Second, forever} {
					if a := ask(t.Context(), l, n, maxWait).now(); a.never || a.err != nil {
						t.Errorf("Take(%d, %v): %v", n, maxWait, a)
					}
				}
			}
			if !l.TryAcquire() || tryTake(l, 77) != 77 {
				t.Error("refused")
			}
		})
	})
	t.Run("those that waited before", func(t *testing.T) {
		bubble(t, policyOf(t, "10/m"), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			tryTake(l, 10)
			first, second := ask(ctx, l, 3, forever), make(chan error, 1)
			l.TakeFunc(2, forever, func(_ consumer.Permit, err error) { second <- err })
			time.Sleep(time.Second)
			if err := source.Set(shadow(policyOf(t, "10/m"))); err != nil {
				t.Fatal(err)
			}
			if a := first.now(); a.never || a.err != nil {
				t.Errorf("Take: %v", a)
			}
			select {
			case err := <-second:
				if err != nil {
					t.Errorf("TakeFunc: %v", err)
				}
			default:
				t.Error("TakeFunc waits")
			}
			if st := l.Status(); st.Waiting != 0 {
				t.Errorf("%d wait", st.Waiting)
			}
		})
	})
	t.Run("after Close", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			i := fleet(t, shadow(policyOf(t, "10/s")), 1).Instances()[0]
			l := open(t, i, consumer.Options{})
			i.Kill()
			for range 20 {
				if err := takeNow(l, 1); !errors.Is(err, consumer.ErrClosed) {
					t.Errorf("the source is closed: %v", err)
				}
				if l.TryAcquire() || tryTake(l, 1) > 0 {
					t.Error("the source is closed, and there is a permit")
				}
			}
			if a := ask(t.Context(), l, 1, forever).now(); a.never || !errors.Is(a.err, consumer.ErrClosed) {
				t.Errorf("the source is closed: %v", a)
			}
		})
	})
	t.Run("a permit that passed is none to release", func(t *testing.T) {
		for _, shape := range []quota.Shape{quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket} {
			policy := policyOf(t, "10/m")
			policy.Shape = shape
			bubble(t, shadow(policy), func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
				tryTake(l, 10)
				p, err := l.Take(ctx, 1, 0)
				if err != nil {
					t.Fatal(err)
				}
				if err := source.Set(policy); err != nil {
					t.Fatal(err)
				}
				if release(l, p) {
					t.Errorf("%s: taken back", shape)
				}
				if n := tryTake(l, 100); n != 0 {
					t.Errorf("%s: %d of 10 issued", shape, 10+n)
				}
			})
		}
	})
}
