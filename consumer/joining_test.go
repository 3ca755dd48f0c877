package consumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// Who asks an instance that has no share yet, and to which nobody may lend, is told when its share begins, and not an
// earlier time to come again. A call that cannot wait that long is refused at once.
func TestARefusalWhileJoiningSaysWhenTheShareBegins(t *testing.T) {
	for name, c := range map[string]struct {
		limits, keys, key string
		shape             quota.Shape
	}{
		"in flight": {"100 inflight hold=2m", "", "", ""},
		"a limit":   {"15000/s", "", "", ""},
		"sliding":   {"15000/s", "", "", quota.ShapeSliding},
		"a bucket":  {"15000/s", "", "", quota.ShapeBucket},
		"a key":     {"15000/s", "14/s", "a", ""},
		"its shape": {"15000/s", "14/s", "a", quota.ShapeSliding}, // the provider's
		"long keys": {"15000/s", "14/s,5000/h sliding", "a", ""},
		"only keys": {"15000/s", "5000/h sliding", "a", ""},
		"too short": {"15000/s,2000/100ms", "", "", ""}, // for loans
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stub{clock: clock.New()}
				l := open(t, s.source(), Options{})
				time.Sleep(200 * time.Millisecond)
				policy := policyOf(t, c.limits)
				if c.limits == "15000/s" && c.shape == "" { // else nothing is lent in any case
					policy.Lend = "off"
				}
				if c.keys != "" {
					policy.Keys = quota.Keys{Limits: policyOf(t, c.keys).Limits}
				}
				start := time.Now()
				begins := start.Truncate(time.Second).Add(4 * time.Second)
				if c.shape != "" {
					policy.Shape, policy.Guard = c.shape, 20*time.Millisecond
					begins = begins.Add(1124 * time.Millisecond) // until no earlier window is in reach
				}
				s.tell(1, withDefaults(policy), 2)
				acquire := l.Acquire
				if c.key != "" {
					acquire = l.Key(c.key).Acquire
				}
				for time.Until(begins) > 0 {
					for _, wait := range []time.Duration{0, time.Second, 2 * time.Second} {
						began := time.Now()
						if wait >= begins.Sub(began) {
							continue
						}
						err := acquire(t.Context(), wait)
						if e, ok := errors.AsType[LimitError](err); !ok || e.Reason != ReasonJoining || !e.RetryAt.Equal(begins) || !time.Now().Equal(began) {
							t.Fatalf("after %v of %v: %v, to be retried at %v, want at once, and %v", time.Since(began), wait, err, e.RetryAt, begins)
						}
					}
					time.Sleep(300 * time.Millisecond)
					s.prove()
				}
				if err := acquire(t.Context(), 2*time.Second); err != nil && strings.Contains(err.Error(), "joined") {
					t.Error(err)
				}
			})
		})
	}
}

// So is a call that came before etcd had told anything, as soon as that says how long it would have to wait.
func TestACallBeforeTheFirstViewIsRefusedOnceItIsKnownToBeTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{})
		start, policy := time.Now(), policyOf(t, "15000/s")
		policy.Lend, policy.Keys = "off", quota.Keys{Limits: policyOf(t, "14/s").Limits}
		for _, c := range []struct {
			acquire func(context.Context, time.Duration) error
			wait    time.Duration
			late    bool
		}{{l.Acquire, 2 * time.Second, true}, {l.Key("a").Acquire, 2 * time.Second, true}, {l.Key("a").Acquire, 5 * time.Second, false}} {
			go func() {
				err := c.acquire(t.Context(), c.wait)
				if at := time.Since(start); (at == 100*time.Millisecond) != c.late || (err == nil) == c.late {
					t.Errorf("a wait of %v: %v at %v", c.wait, err, at)
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		s.tell(1, withDefaults(policy), 2)
		for range 10 {
			time.Sleep(time.Second)
			s.prove()
		}
	})
}

// The end that an instance has announced is no trouble: the log says nothing of it, as of Close, and advises nothing.
func TestAnEndThatWasAnnouncedIsNotLoggedAsJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		s.tell(1, withDefaults(policyOf(t, "10/s")), 1)
		for range 5 {
			time.Sleep(time.Second)
			s.prove()
			l.core.Report(l.core.clock.Now())
		}
		if !strings.Contains(text.String(), "limiter is active") {
			t.Fatal(text.String())
		}
		text.Reset()
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "me", Until: time.Now().Add(2 * time.Second)}}})
		for range 3 {
			time.Sleep(time.Second)
			s.prove()
			l.core.Report(l.core.clock.Now())
		}
		if st := l.Status(); st.State != quota.StateJoining || st.Problem != cause.ErrLeft.Error() || text.Len() > 0 {
			t.Errorf("%s, %q, and the log says %s", st.State, st.Problem, text.String())
		}
	})
}
