package consumer_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// What cannot be had is refused at once, and stops nobody behind it.
func TestWhatCannotBeHadIsRefusedAtOnce(t *testing.T) {
	divided, warm := policyOf(t, "1000/s"), policyOf(t, "30/s")
	divided.Lend = "off"
	warm.WarmUp = time.Hour
	sliding, bucket := policyOf(t, "20/s"), policyOf(t, "20/s")
	sliding.Shape, sliding.Guard = quota.ShapeSliding, 20*time.Millisecond
	bucket.Shape, bucket.Guard = quota.ShapeBucket, 20*time.Millisecond
	for _, c := range []struct {
		name      string
		policy    quota.Policy
		instances int
		n         int64
	}{
		{"more than a tenth of the total", divided, 10, 500},
		{"more than an instance that warms up has", warm, 1, 30},
		{"more than a share that slides", sliding, 4, 6},
		{"more than a share of a bucket", bucket, 4, 6},
		{"more than a share of a window too short for loans", policyOf(t, "20/100ms"), 4, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				l := open(t, fleet(t, c.policy, c.instances).Instances()[0], consumer.Options{})
				time.Sleep(1300 * time.Millisecond)
				if d := delay(l, c.n); d != math.MaxInt64 {
					t.Errorf("Delay is %v", d)
				}
				a := ask(ctx, l, c.n, forever).now()
				if a.never || !errors.Is(a.err, consumer.ErrTooLarge) {
					t.Errorf("%v, want ErrTooLarge at once", a)
				}
				if a := ask(ctx, l, 1, 2*time.Second).within(3 * time.Second); a.never || a.err != nil {
					t.Errorf("the next: %v", a)
				}
				if err := takeNow(l, c.n); !errors.Is(err, consumer.ErrTooLarge) {
					t.Errorf("without waiting: %v, want ErrTooLarge", err)
				}
				cancel()
			})
		})
	}
}

// A request that fitted when it came, and fits no more by a limit that was
// announced, stops nobody behind it.
func TestAnAnnouncedLimitRefusesWhatItCannotHold(t *testing.T) {
	p := policyOf(t, "10/s")
	p.Next = []quota.LimitChange{{From: time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC), Limits: policyOf(t, "5/s").Limits}}
	bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		tryTake(l, 10)
		time.Sleep(600 * time.Millisecond)
		head, next := ask(ctx, l, 8, forever), ask(ctx, l, 1, forever)
		if a := next.within(5 * time.Second); a.never || a.err != nil || a.after > 400*time.Millisecond {
			t.Errorf("the next: %v", a)
		}
		if a := head.now(); a.never || !errors.Is(a.err, consumer.ErrTooLarge) {
			t.Errorf("the head: %v, want ErrTooLarge", a)
		}
	})
}

// Where nothing is lent, an instance whose share is 0 is not told to wait for a loan.
func TestAShareOfNothingWithoutLoansSaysSo(t *testing.T) {
	divided, sliding := policyOf(t, "3/s"), policyOf(t, "3/s")
	divided.Lend = "off"
	sliding.Shape, sliding.Guard = quota.ShapeSliding, 20*time.Millisecond
	for name, c := range map[string]struct {
		policy quota.Policy
		want   string
	}{
		"lend off": {divided, "nothing is lent under this policy"},
		"sliding":  {sliding, "nothing is lent under this policy"},
		"lent":     {policyOf(t, "3/s"), "others may lend a permit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var limiters []*consumer.Limiter
				for _, source := range fleet(t, c.policy, 5).Instances() {
					limiters = append(limiters, open(t, source, consumer.Options{}))
				}
				time.Sleep(2 * time.Second)
				said := 0
				for _, l := range limiters {
					var e consumer.LimitError
					if !errors.As(takeNow(l, 1), &e) || e.Share > 0 {
						continue
					}
					said++
					if lent := name == "lent"; !strings.Contains(e.Error(), c.want) || lent == e.RetryAt.IsZero() {
						t.Errorf("%v, want %q, and when it comes where some is lent", e, c.want)
					}
				}
				if said < 2 {
					t.Errorf("%d instances have no share, want 2", said)
				}
			})
		})
	}
}
