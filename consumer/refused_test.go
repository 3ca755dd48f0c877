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
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
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

// nowhere carries nothing: who has it may lend and borrow.
type nowhere struct{ feed.Carrier }

func (nowhere) Ask(string, []protocol.Request)     {}
func (nowhere) Tell(string, string, protocol.Note) {}

// While etcd does not answer nothing is lent. A call for more than this instance's share is not refused as one that can
// never be served: it can when etcd answers again.
func TestALargeCallWhileEtcdIsAwayIsNoMistake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		p := policyOf(t, "300/s")
		p.Keys = quota.Keys{Limits: policyOf(t, "300/s").Limits, Owners: 2}
		s.start(p, 2)
		s.sink.Carry(nowhere{})
		at := time.Now().UTC().Format("15:04:05 UTC")
		time.Sleep(10 * time.Second)
		for who, take := range map[string]func(context.Context, int64, time.Duration) (consumer.Permit, error){"": l.Take, ` for key "a"`: l.Key("a").Take} {
			_, err := take(t.Context(), 250, 3*time.Second)
			e, _ := errors.AsType[consumer.LimitError](err)
			if want := "consumer: p: no permit" + who + ": 250 permits asked for, and this instance can have 150 at once, as nothing is lent until etcd answers (no answer from etcd since " + at + "): ask for fewer, or use TryTake"; !errors.Is(err, consumer.ErrStale) || errors.Is(err, consumer.ErrTooLarge) || e.Reason != consumer.ReasonStale || err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
			if _, err := take(t.Context(), 301, 3*time.Second); !errors.Is(err, consumer.ErrTooLarge) {
				t.Errorf("more than the limit: %v, want ErrTooLarge", err)
			}
		}
		s.prove()
		if _, err := l.Take(t.Context(), 250, 0); !errors.Is(err, consumer.ErrLimited) || errors.Is(err, consumer.ErrStale) {
			t.Errorf("etcd answers again: %v, want ErrLimited", err)
		}
	})
}

// Of a bucket the burst decides what one call can have, also for an instance that is alone.
func TestABurstThatIsTooSmallIsNamed(t *testing.T) {
	p := policyOf(t, "60/s")
	p.Shape, p.Burst, p.Guard = quota.ShapeBucket, 5, 20*time.Millisecond
	bubble(t, p, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		want := consumer.TooLargeError{Provider: "p", Asked: 4, Largest: 3, Burst: 5}
		if _, err := l.Take(ctx, 4, 0); err != want || err.Error() != "consumer: p: 4 permits asked for, and this instance can have 3 at once, its share of the burst of 5 less the guard: ask for fewer, use TryTake, or raise --burst" { //nolint:errorlint // the value
			t.Errorf("%v (%#v), want %#v", err, err, want)
		}
	})
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
