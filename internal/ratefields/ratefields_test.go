package ratefields_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/internal/testkit/told"
	"github.com/quotient-limiter/quotient/quota"
)

// source tells a limiter what the test says.
type source struct{ *told.Source }

// tell has the instance be the only one, since that long, and proves it.
func (s *source) tell(p quota.Policy, since time.Duration) {
	s.Tell(&p, since)
	s.Prove()
}

// fund answers what is asked of etcd: the hour's total, of which the instance has so many.
func (s *source) fund(t *testing.T, taken int64, total escrow.Total) {
	t.Helper()
	total.Cluster = 1
	text, err := escrow.Encode(total)
	if err != nil {
		t.Fatal(err)
	}
	uses, _ := s.Sink.Uses(8)
	if len(uses) != 1 {
		t.Fatalf("%d uses", len(uses))
	}
	uses[0].Purse.Read([]byte(text), 1, &escrow.Verdict{Cluster: 1})
	uses[0].Purse.Taken = taken
	s.Sink.Fund(uses)
}

// A refused client comes back when there may be permits. If nobody knows when, it comes back when there is more of a
// limit that is spent, and else after a second: the end of an hour says nothing of when a state is over, and nor does
// what is left of it, so that neither is told then.
func TestWhenARefusedClientComesBack(t *testing.T) {
	const settled = time.Hour
	type limiter = consumer.Limiter
	whole := func(s *source, p quota.Policy) { s.tell(p, settled); s.fund(t, 100, escrow.Total{Out: 100}) }
	for name, c := range map[string]struct {
		n             int64
		set           func(p *quota.Policy)
		play          func(ctx context.Context, s *source, l *limiter, p quota.Policy)
		ended         bool // the request's context
		retry, fields string
	}{
		"joining": {n: 1, retry: "3", play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) { s.tell(p, 0) }},
		"a pause": {n: 1, retry: "20", play: func(_ context.Context, s *source, l *limiter, p quota.Policy) {
			whole(s, p)
			l.Throttled(20*time.Second, "429 from api")
		}},
		"an operator's pause": {n: 1, retry: "1", set: func(p *quota.Policy) { p.Mode = quota.ModePause },
			play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) { s.tell(p, settled) }},
		"stale": {n: 1, retry: "1", set: func(p *quota.Policy) { p.Outage = quota.OutageStop },
			play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) { whole(s, p); time.Sleep(time.Minute) }},
		"no limit that it can obey": {n: 1, retry: "1", set: func(p *quota.Policy) { p.Requires = []string{"share_by_region"} },
			play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) { s.tell(p, settled) }},
		"withheld": {n: 1, retry: "1", play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) {
			s.tell(p, settled)
			s.fund(t, 0, escrow.Total{Withheld: "etcd was restored"})
		}},
		"the request's time is over": {n: 1, retry: "1", ended: true, play: func(_ context.Context, s *source, l *limiter, p quota.Policy) { whole(s, p); l.TryTake(20) }},
		"who waits before": {n: 1, retry: "1", fields: `"p-1s";r=4;t=1, "p-h";r=4984;t=3600`, play: func(ctx context.Context, s *source, l *limiter, p quota.Policy) {
			whole(s, p)
			l.TryTake(16)
			go func() { _, _ = l.Take(ctx, 5, consumer.Forever) }()
			synctest.Wait()
		}},
		"a second is spent": {n: 1, retry: "1", fields: `"p-1s";r=0;t=1, "p-h";r=4980;t=3600`,
			play: func(_ context.Context, s *source, l *limiter, p quota.Policy) { whole(s, p); l.TryTake(20) }},
		"an hour is spent": {n: 1, retry: "3600", fields: `"p-1s";r=20;t=1, "p-h";r=0;t=3600`, play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) {
			s.tell(p, settled)
			s.fund(t, 0, escrow.Total{Out: 5000})
		}},
		"an hour has too few": {n: 9, retry: "3600", fields: `"p-1s";r=20;t=1, "p-h";r=8;t=3600`, play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) {
			s.tell(p, settled)
			s.fund(t, 2, escrow.Total{Out: 4994})
		}},
		"more of an hour is fetched": {n: 1, retry: "1", fields: `"p-1s";r=20;t=1, "p-h";r=4000;t=3600`, play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) {
			s.tell(p, settled)
			s.fund(t, 0, escrow.Total{Out: 1000})
		}},
		"nothing of an hour is read yet": {n: 1, retry: "1", fields: `"p-1s";r=20;t=1, "p-h";r=0`,
			play: func(_ context.Context, s *source, _ *limiter, p quota.Policy) { s.tell(p, settled) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := &source{told.New()}
				l, err := consumer.Open(ctx, feed.Over[feed.Source](s), "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				limits, err := quota.ParseLimits("20/s,5000/h")
				if err != nil {
					t.Fatal(err)
				}
				p := quota.Policy{Limits: limits}.WithDefaults()
				if c.set != nil {
					c.set(&p)
				}
				c.play(ctx, s, l, p)
				if _, err = l.Take(ctx, c.n, 0); err == nil {
					t.Fatal("it was served")
				}
				if c.ended {
					err = context.DeadlineExceeded
				}
				of, err1 := ratefields.NewName("p")
				if err1 != nil {
					t.Fatal(err1)
				}
				h := http.Header{}
				problem := of.Refuse(h, http.StatusTooManyRequests, ratefields.UsesOf(l, l), c.n, err, time.Now())
				if retry, fields := h.Get("Retry-After"), h.Get("RateLimit"); retry != c.retry || fields != c.fields {
					t.Errorf("%v: Retry-After %s, RateLimit %s; want %s, %s", err, retry, fields, c.retry, c.fields)
				}
				if c.fields == "" && (problem.Violated != nil || !c.ended && !strings.HasSuffix(problem.Type, "#temporary-reduced-capacity")) {
					t.Errorf("%v: %+v", err, problem)
				}
			})
		})
	}
}

// Who is refused by a limit that is spent waits for its window's end also where the limiter does not know when there are
// permits: Retry-After is not earlier than t. A limit that has enough left is not waited for.
func TestASpentLimitIsWaitedFor(t *testing.T) {
	now := time.Unix(946684800, 0)
	use := func(n int64, window, ends time.Duration, left int64) ratefields.Use {
		return ratefields.Use{LimitUse: consumer.LimitUse{Limit: quota.Limit{Permits: n, Window: window}, Left: left, End: now.Add(ends)}}
	}
	of, err := ratefields.NewName("p")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	p := of.Refuse(h, http.StatusTooManyRequests, []ratefields.Use{use(5, time.Minute, 40*time.Second, 0), use(50, time.Hour, 20*time.Minute, 1)}, 1,
		consumer.LimitError{Reason: consumer.ReasonSpent, Owner: "web-2"}, now)
	if h.Get("Retry-After") != "40" || p.RetryAfter != 40 || len(p.Violated) != 1 || p.Violated[0] != "p-1m" || h.Get("RateLimit") != `"p-1m";r=0;t=40, "p-h";r=1;t=1200` {
		t.Errorf("%v, %+v", h, p)
	}
}
