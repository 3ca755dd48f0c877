package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The tests of liveness and of old defects call the limiter through these few
// functions. A change of its API changes this file only.

const forever = consumer.Forever

func release(_ *consumer.Limiter, p consumer.Permit) bool { return p.Release() }
func count(p consumer.Permit) int64                       { return p.N() }
func start(p consumer.Permit) time.Time                   { return p.Start() }
func until(p consumer.Permit) time.Time                   { return p.Until() }
func valid(p consumer.Permit, margin time.Duration) bool  { return p.Valid(margin) }
func pauseUntil(l *consumer.Limiter, t time.Time)         { l.PauseUntil(t) }
func delay(l *consumer.Limiter, n int64) time.Duration    { return l.Delay(n) }
func limits(l *consumer.Limiter) []consumer.LimitUse      { return l.Status().Limits }
func tryTake(l *consumer.Limiter, most int64) int64       { return l.TryTake(most).N() }
func takeUpTo(l *consumer.Limiter, most int64) consumer.Permit {
	return l.TryTake(most)
}
func overIssued(st consumer.Status) int64 { return st.OverIssued }

// headAt returns when the head of the queue will be served; known is false if
// nobody can tell.
func headAt(st consumer.Status) (at time.Time, known bool) { return st.HeadAt, !st.HeadAt.IsZero() }

// take takes n permits, and says only how that ended.
func take(ctx context.Context, l *consumer.Limiter, n int64, maxWait time.Duration) error {
	_, err := l.Take(ctx, n, maxWait)
	return err
}

// takeNow takes n permits now, or says why not.
func takeNow(l *consumer.Limiter, n int64) error {
	return take(context.Background(), l, n, 0)
}

// limitError returns the LimitError in err.
func limitError(err error) (consumer.LimitError, bool) {
	return errors.AsType[consumer.LimitError](err)
}

// told is a source that the test plays itself.
type told struct {
	clock    *clock.Clock
	sink     feed.Sink
	revision int64
}

func (s *told) Clock() *clock.Clock { return s.clock }

func (s *told) Subscribe(_ string, create func() feed.Sink) (feed.Sink, func() error, error) {
	if s.sink == nil {
		s.sink = create()
	}
	return s.sink, func() error { return nil }, nil
}

// start lets the instance "me" be one of n in a fleet, since for long, and
// proves it now.
func (s *told) start(policy quota.Policy, n int) {
	s.begin(policy, n)
	s.prove()
}

// begin is start without a proof.
func (s *told) begin(policy quota.Policy, n int) {
	policy = policy.WithDefaults()
	s.revision = 1
	v := protocol.View{Revision: 1, Policy: &policy, PolicyRevision: 1}
	for i := range n {
		id := "me"
		if i > 0 {
			id = string(rune('a' + i))
		}
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
	}
	began := s.clock.Now()
	began.Mono -= int64(quota.MaxSettle + 4*quota.MaxWindow)
	s.sink.Reset(began, "me", v)
}

func (s *told) prove() { s.sink.Prove(s.clock.Now()) }

// without takes an instance out of the view.
func (s *told) without(id string) {
	s.revision++
	s.sink.Apply(s.clock.Now(), protocol.Change{Revision: s.revision, Deleted: []string{id}})
}

// quiet logs nothing.
var quiet = slog.New(slog.DiscardHandler)

func policyOf(t testing.TB, limits string) quota.Policy {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	return quota.Policy{Limits: l}
}

func open(t testing.TB, source consumer.Source, o consumer.Options) *consumer.Limiter {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l, err := consumer.Open(context.Background(), source, "p", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func fleet(t testing.TB, policy quota.Policy, n int) *limittest.Fleet {
	t.Helper()
	f, err := limittest.New(policy, n)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { time.Sleep(d) }

// bubble runs f in fake time, which begins at the start of a window of every
// length, with a limiter that has the whole limit.
func bubble(t *testing.T, policy quota.Policy, f func(t *testing.T, ctx context.Context, source *consumer.FixedSource, l *consumer.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		source := consumer.Fixed(policy)
		ctx, cancel := context.WithCancel(t.Context())
		l := open(t, source, consumer.Options{})
		f(t, ctx, source, l)
		cancel()
		synctest.Wait()
	})
}

// answer is what became of a request.
type answer struct {
	permit consumer.Permit
	err    error
	after  time.Duration // since it was asked
	never  bool          // nothing yet
}

// request is one that waits on a goroutine of its own.
type request struct {
	asked  time.Time
	cancel context.CancelFunc

	mu sync.Mutex
	a  *answer
}

// ask requests n permits on a goroutine, and returns when that one waits or has
// its answer.
func ask(ctx context.Context, l *consumer.Limiter, n int64, maxWait time.Duration) *request {
	ctx, cancel := context.WithCancel(ctx)
	r := &request{asked: time.Now(), cancel: cancel}
	go func() {
		p, err := l.Take(ctx, n, maxWait)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.a = &answer{permit: p, err: err, after: time.Since(r.asked)}
	}()
	synctest.Wait()
	return r
}

// now returns the answer as it stands.
func (r *request) now() answer {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.a == nil {
		return answer{never: true}
	}
	return *r.a
}

// within waits for the answer, for the time d after it was asked at most.
func (r *request) within(d time.Duration) answer {
	for a := r.now(); ; a = r.now() {
		left := time.Until(r.asked.Add(d))
		if !a.never || left <= 0 {
			r.cancel()
			return a
		}
		time.Sleep(min(left, max(d/1000, time.Millisecond)))
	}
}

func (a answer) String() string {
	switch {
	case a.never:
		return "no answer"
	case a.err != nil:
		return a.err.Error() + " after " + a.after.String()
	}
	return "granted after " + a.after.String()
}
