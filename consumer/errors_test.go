package consumer_test

import (
	"context"
	"errors"
	"math/rand/v2"
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

// The clock is corrected all the time, so an edge of a window is computed a little sooner or later by the next
// call. The text says the same.
func TestTheTimeInAnErrorIsSteady(t *testing.T) {
	edge := time.Date(2027, 1, 2, 0, 0, 0, 0, time.UTC)
	for length, want := range map[time.Duration]string{time.Second: "; next at 00:00:00.000 UTC", 24 * time.Hour: "; next at 2027-01-02 00:00 UTC"} {
		for off := -400 * time.Microsecond; off <= 400*time.Microsecond; off += 100 * time.Microsecond {
			e := consumer.LimitError{Provider: "p", Window: quota.Window{Length: length}, RetryAt: edge.Add(off)}
			if !strings.HasSuffix(e.Error(), want) {
				t.Errorf("%v off: %v, want%s", off, e, want)
			}
		}
	}
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
