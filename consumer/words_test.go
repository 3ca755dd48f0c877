package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// The errors that are no LimitError, whole: each says what happened, the number that decided, and what
// to do.
func TestErrorsInWords(t *testing.T) {
	said := func(t *testing.T, err, kind error, want string) {
		t.Helper()
		if !errors.Is(err, kind) || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	policy := policyOf(t, "10/s")
	policy.Keys = quota.Keys{Limits: policyOf(t, "5/s").Limits, Most: 1}
	bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		take := func(n int64) error { _, err := l.Take(ctx, n, 0); return err }
		said(t, take(0), consumer.ErrInvalid, "consumer: invalid argument: 0 permits asked for, at least 1 are needed")
		said(t, take(11), consumer.ErrTooLarge, "consumer: p: 11 permits asked for, the limit is 10/s")
		used := l.Key("a").TryTake(1)
		said(t, l.Key("b").Acquire(ctx, 0), consumer.ErrTooManyKeys, `consumer: p: too many keys are in use: key "b" would be one more than 1, the most that an instance may have in use; wait until windows of other keys end, or raise the bound: quota-admin set p LIMITS --keys-most N`)
		if err := used.Settle(1); err != nil {
			t.Error(err)
		}
		said(t, used.Settle(2), consumer.ErrInvalid, "consumer: p: settle: invalid argument: the permit was released or settled before: do it once")
		said(t, l.TryTake(2).Settle(-1), consumer.ErrInvalid, "consumer: settle: invalid argument: a cost of -1 permits: it must be 0 to 1000000000000; settle with the provider's count for this one call")
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		said(t, take(1), consumer.ErrClosed, "consumer: p: limiter is closed: this program called Close or Shutdown")
	})
	synctest.Test(t, func(t *testing.T) {
		l := open(t, consumer.Fixed(policyOf(t, "1/s")), consumer.Options{MaxWaiters: 1})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l.TryAcquire()
		go func() { _ = l.Wait(ctx) }()
		synctest.Wait()
		said(t, l.Acquire(ctx, consumer.Forever), consumer.ErrQueueFull, "consumer: p: too many callers wait: 1 wait already (Options.MaxWaiters)")
	})
	synctest.Test(t, func(t *testing.T) {
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		p := policyOf(t, "10/s")
		p.Outage = quota.OutageStop
		s.start(p, 2)
		late := l.TryTake(2)
		at := time.Now().UTC().Format("15:04:05 UTC")
		time.Sleep(time.Minute)
		said(t, l.Acquire(t.Context(), 0), consumer.ErrStale, "consumer: p: stopped by the outage rule stop: no answer from etcd since "+at+"; it goes on by itself when etcd answers, and quota-admin doctor finds the cause")
		s.sink.Trouble(fmt.Errorf("read: %w", cause.ErrLogin))
		said(t, l.Acquire(t.Context(), 0), consumer.ErrStale, "consumer: p: stopped by the outage rule stop: read: etcd does not permit it; "+cause.Remedy(cause.ErrLogin))
		other := fmt.Errorf("read: %w; %s", cause.ErrDenied, cause.GrantRole("other")) // of what the session reads for all
		s.sink.Trouble(other)
		said(t, l.Acquire(t.Context(), 0), consumer.ErrStale, "consumer: p: stopped by the outage rule stop: "+other.Error())
		s.sink.Close()
		said(t, late.Settle(30), consumer.ErrClosed, "consumer: p: settle: limiter is closed: the 28 permits beyond the reservation are not counted: settle before Close")
	})
}
