package doctor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/internal/testkit/told"
	"github.com/quotient-limiter/quotient/quota"
)

// One cause has one name: in the error of a call, in the metrics' label, in the answer over HTTP, in
// the report and so in top, in the log and by doctor; and one sentence, in all that have one.
func TestOneCauseHasOneName(t *testing.T) {
	const long = time.Hour
	type limiter = consumer.Limiter
	begin := func(s *told.Source, p quota.Policy) { s.Tell(&p, long); s.Prove() }
	plays := map[string]struct { // by the reason, and a name where it has several
		n    int64
		says string // in the sentence
		set  func(p *quota.Policy)
		play func(ctx context.Context, s *told.Source, l *limiter, p quota.Policy)
	}{
		"share spent": {n: 1, play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) { begin(s, p); l.TryTake(10) }},
		"debt": {n: 1, play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) {
			begin(s, p)
			if err := l.TryTake(1).Settle(95); err != nil {
				panic(err)
			}
		}},
		"queue": {n: 1, play: func(ctx context.Context, s *told.Source, l *limiter, p quota.Policy) {
			begin(s, p)
			l.TryTake(4)
			go func() { _, _ = l.Take(ctx, 8, consumer.Forever) }()
			synctest.Wait()
		}},
		"kept": {n: 1, set: func(p *quota.Policy) { p.Critical = 30 },
			play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) { begin(s, p); l.TryTake(10) }},
		"pacing": {n: 2, set: func(p *quota.Policy) { p.Pacing = quota.PacingEven },
			play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) { begin(s, p); l.TryTake(10) }},
		"joining": {n: 1, play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) {
			s.Tell(&p, 0)
			s.Prove()
		}},
		"pause": {n: 1, play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) {
			begin(s, p)
			l.Throttled(20*time.Second, "429 from api")
		}},
		"paused": {n: 1, set: func(p *quota.Policy) { p.Mode, p.Author = quota.ModePause, "ann" },
			play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) { begin(s, p) }},
		"too large": {n: 10, set: func(p *quota.Policy) { p.WarmUp = long },
			play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) { begin(s, p) }},
		"queue full": {n: 1, play: func(ctx context.Context, s *told.Source, l *limiter, p quota.Policy) {
			begin(s, p)
			l.TryTake(10)
			go func() { _ = l.Wait(ctx) }()
			synctest.Wait()
		}},
		"in flight": {n: 1, set: func(p *quota.Policy) { p.Limits = []quota.Limit{{Permits: 10, Window: time.Minute, InFlight: true}} },
			play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) { begin(s, p); l.TryTake(10) }},
		"closed":    {n: 1, play: func(_ context.Context, s *told.Source, l *limiter, p quota.Policy) { begin(s, p); _ = l.Close() }},
		"no policy": {n: 1, play: func(_ context.Context, s *told.Source, _ *limiter, _ quota.Policy) { s.Tell(nil, 0) }},
		"no policy: of a later version": {n: 1, set: func(p *quota.Policy) { p.Requires = []string{"share_by_region"} }, says: "upgrade this program",
			play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) { begin(s, p) }},
		"no policy: of an earlier version": {n: 1, set: func(p *quota.Policy) { p.Ignored = []string{"share weighted"} }, says: "set it again",
			play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) { begin(s, p) }},
		"stale": {n: 1, set: func(p *quota.Policy) { p.Outage = quota.OutageStop },
			play: func(_ context.Context, s *told.Source, _ *limiter, p quota.Policy) {
				begin(s, p)
				time.Sleep(time.Minute)
			}},
	}
	sentences := 0
	for _, c := range cause.All {
		if _, ok := plays[c.Reason]; !ok {
			t.Errorf("nothing here plays %q", c.Reason)
		}
	}
	for name, play := range plays {
		reason, _, _ := strings.Cut(name, ":")
		c := cause.Of(reason)
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var log bytes.Buffer
			s := told.New()
			l, err := consumer.Open(ctx, feed.Over[feed.Source](s), "p", consumer.Options{MaxWaiters: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}.WithDefaults()
			if play.set != nil {
				play.set(&p)
			}
			play.play(ctx, s, l, p)
			wait := time.Duration(0)
			if c.Reason == "queue full" {
				wait = consumer.Forever
			}
			before := l.Status().RefusedBy[consumer.Reason(c.Reason)]
			_, err = l.Take(ctx, play.n, wait)
			if of := ratefields.CauseOf(err); of != c {
				t.Fatalf("%v is of %+v, want %+v", err, of, c)
			}
			if n := l.Status().RefusedBy[consumer.Reason(c.Reason)]; n != before+play.n {
				t.Errorf("%s: the metric counts %d permits more by that label, want %d", c.Reason, n-before, play.n)
			}
			answer := ratefields.Name{}.Refuse(http.Header{}, http.StatusTooManyRequests, nil, play.n, err, time.Now())
			if answer.Title != c.Title {
				t.Errorf("%s: over HTTP it is %q, want %q", c.Reason, answer.Title, c.Title)
			}
			r := s.Sink.Report(s.Clock().Now())
			if word := cause.Word(r.State, r.Debt); word != c.Word {
				t.Errorf("%s: top says %q, want %q", c.Reason, word, c.Word)
			}
			if !strings.Contains(err.Error(), r.Problem) {
				t.Errorf("%s: the call is told %q, and operators %q", c.Reason, err, r.Problem)
			}
			if says := `msg="limiter ` + strings.TrimSuffix(cause.Says(r.State, r.Debt, ""), ": "); c.Word != "joining" && c.Word != "closed" && !strings.Contains(log.String(), says) {
				t.Errorf("%s: the log has no %s: %s", c.Reason, says, log.String())
			}
			if r.Problem == "" {
				return
			}
			sentences++
			if !strings.Contains(r.Problem, play.says) {
				t.Errorf("%s: %q does not say %q", name, r.Problem, play.says)
			}
			if c.Word != "joining" && !strings.Contains(log.String(), fmt.Sprintf("problem=%q", r.Problem)) {
				t.Errorf("%s: the log does not say %q: %s", c.Reason, r.Problem, log.String())
			}
			f := &protocol.Fleet{Provider: "p", Policy: protocol.Stored{Revision: 40, Policy: p}, Instances: []protocol.InstanceStatus{
				{Instance: protocol.Instance{ID: "w.1.1", Name: "w", Started: time.Now()}, Report: &r},
			}}
			var found Chart
			judgeFleet(&found, f, time.Now(), nil, absence{})
			want := cause.Says(r.State, r.Debt, r.Problem)
			if !strings.HasPrefix(strings.TrimPrefix(want, "is "), c.Word+": ") {
				t.Errorf("%s: doctor says %q", c.Reason, want)
			}
			if !strings.Contains(fmt.Sprint(found), want) {
				t.Errorf("%s: doctor does not say %q, but %+v", c.Reason, want, found)
			}
		})
	}
	if sentences < 5 {
		t.Errorf("%d causes have a sentence for operators: this test sees too little", sentences)
	}
}
