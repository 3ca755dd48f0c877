package consumer_test

import (
	"context"
	"errors"
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

// A refusal says what decided it, by its Reason and in words.
func TestARefusalSaysWhatDecidedIt(t *testing.T) {
	type limiter = consumer.Limiter
	for _, c := range []struct {
		reason consumer.Reason
		text   string
		set    func(p *quota.Policy)
		before func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *limiter)
		n      int64
	}{
		{consumer.ReasonSpent, "the limit of 10/s is used up; next at 00:00:01.000 UTC", nil,
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) { l.TryTake(10) }, 1},
		{consumer.ReasonSpent, "the limit of 10/s has fewer than 2 left", nil,
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) { l.TryTake(9) }, 2},
		{consumer.ReasonDebt, "an earlier call cost more than it reserved; 25 of that are still to be paid, by about ", nil,
			func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) {
				if err := l.TryTake(1).Settle(35); err != nil {
					t.Error(err)
				}
			}, 1},
		{consumer.ReasonQueue, "1 caller is ahead, and the first wants 8", nil,
			func(_ *testing.T, ctx context.Context, _ *consumer.FixedSource, l *limiter) {
				l.TryTake(4)
				go func() { _, _ = l.Take(ctx, 8, consumer.Forever) }()
				synctest.Wait()
			}, 1},
		{consumer.ReasonKept, "the last 3 of this window are kept for critical calls", func(p *quota.Policy) { p.Critical = 30 },
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) { l.TryTake(10) }, 1},
		{consumer.ReasonPacing, "the policy releases permits evenly", func(p *quota.Policy) { p.Pacing = quota.PacingEven },
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) { l.TryTake(10) }, 2},
		{consumer.ReasonPause, "this program paused the limiter until 00:00:10 UTC", nil,
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) {
				l.PauseUntil(time.Now().Add(10 * time.Second))
			}, 1},
		{consumer.ReasonPause, "the provider asked for a pause until 00:00:10 UTC (429 from api); quota-admin resume p ends it", nil,
			func(_ *testing.T, _ context.Context, _ *consumer.FixedSource, l *limiter) {
				l.Throttled(10*time.Second, "429 from api")
			}, 1},
		{consumer.ReasonPaused, `paused by ann at 14:02 UTC ("it is down"); resume with quota-admin resume p`, func(p *quota.Policy) {
			p.Mode, p.Author, p.Reason, p.Time = quota.ModePause, "ann", "it is down", time.Date(2026, 1, 1, 14, 2, 3, 0, time.UTC)
		}, func(*testing.T, context.Context, *consumer.FixedSource, *limiter) {}, 1},
	} {
		policy := policyOf(t, "10/s")
		if c.set != nil {
			c.set(&policy)
		}
		bubble(t, policy, func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter) {
			c.before(t, ctx, source, l)
			for range 2 { // the second is answered from what is kept
				_, err := l.Take(ctx, c.n, 0)
				if e, ok := limitError(err); !ok || e.Reason != c.reason || !strings.Contains(err.Error(), "consumer: p: no permit: "+c.text) {
					t.Errorf("%v (%s), want %q because of %s", err, e.Reason, c.text, c.reason)
				}
			}
			if n := l.Status().RefusedBy[c.reason]; n < 2*c.n {
				t.Errorf("%d permits are counted as refused because of %s", n, c.reason)
			}
		})
	}
}

// Among several instances a refusal has the share and the limit, and no numbers while none are known.
func TestARefusalHasTheNumbersThatDecided(t *testing.T) {
	of := func(e consumer.LimitError) consumer.LimitError {
		e.Provider, e.Window = "p", quota.WindowAt(time.Second, 0)
		return e
	}
	for want, e := range map[string]consumer.LimitError{
		"this instance's share is used up (250 of 1000/s, 4 instances)":            of(consumer.LimitError{Reason: consumer.ReasonSpent, Asked: 1, Share: 250, Total: 1000, Instances: 4}),
		"this instance's share has fewer than 3 left (250 of 1000/s, 4 instances)": of(consumer.LimitError{Reason: consumer.ReasonSpent, Asked: 3, Share: 250, Total: 1000, Instances: 4}),
		"900 asked for, and this instance's share is 250 of 1000/s (4 instances); others lend the rest to about one such call in 4 windows, if it waits for more than 2 (maxWait); or ask for fewer": of(
			consumer.LimitError{Reason: consumer.ReasonSpent, Asked: 900, Share: 250, Total: 1000, Instances: 4}),
		"this instance's share is 0 of 3/s (7 instances); others may lend a permit within a window (maxWait), and each has one only by a longer window": of(
			consumer.LimitError{Reason: consumer.ReasonSpent, Asked: 1, Total: 3, Instances: 7}),
		"this instance's share is 0 of 9/s (7 instances); others may lend a permit within a window (maxWait)": of(consumer.LimitError{Reason: consumer.ReasonSpent, Asked: 1, Total: 9, Instances: 7}),
		"3 callers are ahead, and the first wants 400, more than this instance's share of 250":                of(consumer.LimitError{Reason: consumer.ReasonQueue, Ahead: 3, First: 400, Share: 250}),
		"its owner demo-2 has lent none; send the call there, or wait":                                        of(consumer.LimitError{Reason: consumer.ReasonSpent, Owner: "demo-2", Total: 10, Instances: 4}),
		"this instance has no share yet, and nothing borrowed is left":                                        of(consumer.LimitError{Reason: consumer.ReasonJoining, Total: 1000, Instances: 1}),
	} {
		if text := e.Error(); !strings.HasPrefix(text, "consumer: p: no permit: "+want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
}

// A refusal of a key names what decided, as the provider's does.
func TestARefusalOfAKeySaysWhatDecidedIt(t *testing.T) {
	for _, c := range []struct {
		reason consumer.Reason
		text   string
		set    func(p *quota.Policy)
		before func(t *testing.T, y consumer.Key)
	}{
		{consumer.ReasonSpent, ` for key "a": the limit of 5/s is used up; next at 00:00:01.000 UTC`, nil,
			func(_ *testing.T, y consumer.Key) { y.TryTake(5) }},
		{consumer.ReasonDebt, ` for key "a": an earlier call cost more than it reserved; 25 of that are still to be paid, by about 2000-01-01 00:00:05 UTC`, nil,
			func(t *testing.T, y consumer.Key) {
				if err := y.TryTake(1).Settle(30); err != nil {
					t.Error(err)
				}
			}},
		{consumer.ReasonKept, ": the last 3 of this window are kept for critical calls; next at 00:00:00.", func(p *quota.Policy) {
			p.Critical, p.Keys.Limits = 30, policyOf(t, "50/s").Limits
		}, func(_ *testing.T, y consumer.Key) { y.TryTake(10) }},
		{consumer.ReasonPacing, ": the policy releases permits evenly, and callers that can wait should use Acquire; next at 00:00:00.", func(p *quota.Policy) {
			p.Pacing = quota.PacingEven
		}, func(_ *testing.T, y consumer.Key) { y.TryTake(1) }},
		{consumer.ReasonPause, ` for key "a": this program paused the limiter until 00:00:10 UTC`, nil,
			func(_ *testing.T, y consumer.Key) { y.TryTake(5) }},
	} {
		policy := policyOf(t, "10/s")
		policy.Keys.Limits = policyOf(t, "5/s").Limits
		if c.set != nil {
			c.set(&policy)
		}
		bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
			y := l.Key("a")
			if c.before(t, y); c.reason == consumer.ReasonPause {
				l.PauseUntil(time.Now().Add(10 * time.Second))
			}
			_, err := y.Take(ctx, 1, 0)
			if e, _ := limitError(err); err == nil || e.Reason != c.reason || !strings.HasPrefix(err.Error(), "consumer: p: no permit"+c.text) {
				t.Errorf("%v (%s), want %q because of %s", err, e.Reason, c.text, c.reason)
			}
		})
	}
}

// So does that of a call behind one for more than there is.
func TestARefusalOfAKeySaysWhoIsAhead(t *testing.T) {
	policy := policyOf(t, "10/s")
	policy.Keys.Limits = policyOf(t, "5/s").Limits
	bubble(t, policy, func(t *testing.T, ctx context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		y := l.Key("a")
		says := func(n int64, reason consumer.Reason, want string) {
			t.Helper()
			_, err := y.Take(ctx, n, 0)
			if e, _ := limitError(err); err == nil || err.Error() != want || e.Reason != reason {
				t.Errorf("%v (%s), want %q", err, e.Reason, want)
			}
		}
		says(6, "", `consumer: p: key "a": 6 permits asked for, the limit is 5/s`)
		if _, err := y.Take(ctx, 3, 0); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = y.Take(ctx, 4, consumer.Forever) }()
		synctest.Wait()
		says(1, consumer.ReasonQueue, `consumer: p: no permit for key "a": 1 caller is ahead, and the first wants 4; next at 00:00:01.000 UTC`)
	})
}

// An instance without a share says since when, and when it begins: the same in Status.Problem.
func TestAJoinerSaysWhenItsShareBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(200 * time.Millisecond)
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		policy := policyOf(t, "100/s").WithDefaults()
		begin := func() {
			at := s.clock.Now()
			s.sink.Reset(at, "me", protocol.View{Revision: 1, Policy: &policy, PolicyRevision: 1, Instances: []protocol.Instance{{ID: "me"}, {ID: "b"}}})
			s.prove()
		}
		says := func(want string) {
			t.Helper()
			if st := l.Status(); st.Problem != want {
				t.Errorf("%q\nwant %q", st.Problem, want)
			}
			if err := takeNow(l, 1); err == nil || err.Error() != "consumer: p: no permit: "+want {
				t.Errorf("%v\nwant %q", err, want)
			}
		}
		says("etcd has told nothing yet")
		away := errors.New("etcd is away")
		s.sink.Trouble(away)
		if err := takeNow(l, 1); !errors.Is(err, away) || err.Error() != "consumer: p: no permit: no share yet: etcd is away" {
			t.Error(err)
		}
		s.sink.Trouble(nil)
		begin()
		joined := "this instance joined at 00:00:00 UTC; its share begins at 00:00:04 UTC, with the first window after the settle time (3s)"
		says(joined)
		time.Sleep(2 * time.Second)
		at := s.clock.Now()
		at.Wall -= int64(time.Microsecond) // the host's clock runs a little slower
		s.clock.Observe(at)
		says(joined)
		time.Sleep(3 * time.Second)
		begin()
		says("this instance started over at 00:00:05 UTC; its share begins at 00:00:09 UTC, with the first window after the settle time (3s)")
		lost := errors.New("this instance's lease has ended in etcd; it is registering again")
		s.sink.Trouble(lost)
		if err := takeNow(l, 1); !errors.Is(err, lost) || err.Error() != "consumer: p: no permit: no share since 00:00:05 UTC: "+lost.Error()+"; next at 00:00:09.000 UTC" {
			t.Error(err)
		}
	})
}

// An instance that has waited out its join, but is in the fleet for less than a window of the policy that comes, waits for
// that window.
func TestALongerWindowThatBeginsIsNamed(t *testing.T) {
	for after, want := range map[time.Duration]string{
		2 * time.Second: "this instance joined at 00:00:00 UTC; its share begins at 00:00:10 UTC, with the first window after the settle time (3s)",
		5 * time.Second: "this instance's share of the new window (10s) begins at 00:00:10 UTC",
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(200 * time.Millisecond)
			s := &told{clock: clock.New()}
			l := open(t, feed.Over[feed.Source](s), consumer.Options{})
			second, ten := policyOf(t, "100/s").WithDefaults(), policyOf(t, "100/10s").WithDefaults()
			s.sink.Reset(s.clock.Now(), "me", protocol.View{Revision: 1, Policy: &second, PolicyRevision: 1, Instances: []protocol.Instance{{ID: "me"}, {ID: "b"}}})
			time.Sleep(after)
			s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Policy: &ten})
			s.prove()
			if st := l.Status(); st.Problem != want {
				t.Errorf("after %v: %q\nwant %q", after, st.Problem, want)
			}
			if err := takeNow(l, 1); err == nil || err.Error() != "consumer: p: no permit: "+want {
				t.Errorf("after %v: %v\nwant %q", after, err, want)
			}
			time.Sleep(9800*time.Millisecond - after)
			s.prove()
			if err := takeNow(l, 1); err != nil {
				t.Errorf("after %v, in the new window: %v", after, err)
			}
		})
	}
}

// The first of a fleet waits for a policy that is set as the others do, and says so.
func TestTheFirstOfAFleetWaitsForAPolicyThatIsSetAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		policy := policyOf(t, "100/s").WithDefaults()
		says := func(want string) {
			t.Helper()
			if st := l.Status(); st.Problem != want {
				t.Errorf("%q\nwant %q", st.Problem, want)
			}
		}
		s.sink.Reset(s.clock.Now(), "me", protocol.View{Revision: 1, Policy: &policy, PolicyRevision: 1, First: true, Instances: []protocol.Instance{{ID: "me"}}})
		s.prove()
		says("this instance is the first of its fleet; its share begins at 00:00:01 UTC")
		time.Sleep(5200 * time.Millisecond)
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, PolicyDeleted: true})
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 3, Policy: &policy})
		s.prove()
		says("the policy begins at 2000-01-01 00:00:09 UTC")
	})
}

// The first of a fleet has permits when the longest of its windows begins: nobody is there to lend it any before. So it
// says, at any time until then. Beside an instance that has a share others are asked at the end of the shortest window.
func TestTheFirstOfAFleetSaysWhenItHasPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * time.Second)
		s := &told{clock: clock.New()}
		l := open(t, feed.Over[feed.Source](s), consumer.Options{})
		policy := policyOf(t, "1/s,100/1m").WithDefaults()
		s.sink.Reset(s.clock.Now(), "me", protocol.View{Revision: 1, Policy: &policy, PolicyRevision: 1, First: true, Instances: []protocol.Instance{{ID: "me"}}})
		minute := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)
		for time.Now().Before(minute) {
			s.prove()
			refused, _ := errors.AsType[consumer.LimitError](takeNow(l, 1))
			if want := "consumer: p: no permit: this instance is the first of its fleet; its share begins at 00:01:00 UTC"; !refused.RetryAt.Equal(minute) || refused.Error() != want {
				t.Fatalf("at %v: try again at %v, %v", time.Now(), refused.RetryAt, refused)
			}
			time.Sleep(2100 * time.Millisecond)
		}
		if err := takeNow(l, 1); err != nil {
			t.Error(err)
		}
	})
}
