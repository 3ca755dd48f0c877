package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// stub is a source that the test plays itself.
type stub struct {
	clock *clock.Clock
	sink  feed.Sink
}

// source is the stub as applications have one.
func (s *stub) source() Source { return feed.Over[feed.Source](s) }

func (s *stub) Clock() *clock.Clock { return s.clock }

func (s *stub) Subscribe(_ string, create func() feed.Sink) (feed.Sink, func() error, error) {
	s.sink = create()
	return s.sink, s.Close, nil
}

func (s *stub) Close() error { s.sink.Close(); return nil }

// tell lets the instance "me" join a fleet of n with the given policy, now.
func (s *stub) tell(revision int64, policy *quota.Policy, n int) {
	v := protocol.View{Revision: revision, Policy: policy, PolicyRevision: revision}
	for i := range n {
		id := "me"
		if i > 0 {
			id = string(rune('a' + i))
		}
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
	}
	s.sink.Reset(s.clock.Now(), "me", v)
	s.prove()
}

// proved returns a source, and a limiter of an instance that has had a part of these
// limits, of n, for long.
func proved(t *testing.T, limits string, n int) (*stub, *Limiter) {
	t.Helper()
	s := &stub{clock: clock.New()}
	l := open(t, s.source(), Options{})
	s.tell(1, withDefaults(policyOf(t, limits)), n)
	time.Sleep(3500 * time.Millisecond)
	s.prove()
	return s, l
}

// provedAs returns a source, and a limiter of the instance id, which is one of ids that share
// these limits from now on.
func provedAs(t *testing.T, limits, id string, ids []string) (*stub, *Limiter) {
	t.Helper()
	s := &stub{clock: clock.New()}
	l := open(t, s.source(), Options{})
	v := protocol.View{Revision: 1, Policy: withDefaults(policyOf(t, limits)), PolicyRevision: 1}
	for _, id := range ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
	}
	s.sink.Reset(s.clock.Now(), id, v)
	s.prove()
	return s, l
}

// joins has another instance come, which has a share in an hour.
func (s *stub) joins(id string) {
	s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 9, Put: []protocol.Instance{{ID: id, From: time.Now().Add(time.Hour)}}})
}

func (s *stub) prove() { s.sink.Prove(s.clock.Now()) }

func withDefaults(p quota.Policy) *quota.Policy { p = p.WithDefaults(); return &p }

// holds returns a source, a limiter of it, and a policy of these limits under the outage rule hold.
func holds(t *testing.T, limits string) (*stub, *Limiter, *quota.Policy) {
	s := &stub{clock: clock.New()}
	policy := policyOf(t, limits)
	policy.Outage = quota.OutageHold
	return s, open(t, s.source(), Options{}), withDefaults(policy)
}

// joining demands that the limiter refuses a call because it has no share.
func joining(t *testing.T, l *Limiter) {
	t.Helper()
	var limited LimitError
	if err := l.Acquire(t.Context(), 0); !errors.As(err, &limited) || limited.Reason != ReasonJoining {
		t.Errorf("%s: %v", l.Status().State, err)
	}
}

// An instance whose key was removed before etcd was lost has no share to hold: its
// permits are not spent.
func TestHoldWithoutAKeyIsJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, policy := holds(t, "10/s")
		s.tell(1, policy, 1)
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			s.prove()
		}
		if err := l.Acquire(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		s.tell(2, policy, 0)
		time.Sleep(time.Minute)
		joining(t, l)
	})
}

// What the log says last of an instance without a share is what its refusals say, also while etcd is away: it has nothing
// to go on with under the rule hold.
func TestTheLogSaysWhatRefusalsSayWithoutAShare(t *testing.T) {
	gone := errors.New("this instance's registration is gone from etcd; it is registering again")
	for name, c := range map[string]struct {
		loses   func(s *stub, policy *quota.Policy)
		problem string
	}{
		"its key is gone": {func(s *stub, policy *quota.Policy) {
			s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Deleted: []string{"me"}})
			s.sink.Trouble(gone)
		}, gone.Error()},
		"it has just started over": {func(s *stub, policy *quota.Policy) { s.tell(2, policy, 2) }, "no answer from etcd since 00:00:05 UTC: quota-admin doctor finds the cause"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			s := &stub{clock: clock.New()}
			l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			policy := withDefaults(policyOf(t, "10/s"))
			s.tell(1, policy, 2)
			time.Sleep(5 * time.Second)
			s.prove()
			if l.core.Report(s.clock.Now()); !l.TryAcquire() {
				t.Fatal("no share")
			}
			if c.loses(s, policy); strings.Contains(logged.String(), "its share begins after the settle time") {
				t.Errorf("%s: it is told that time alone brings its share: %s", name, logged.String())
			}
			for range 60 { // etcd is silent from now on
				l.core.Report(s.clock.Now())
				time.Sleep(time.Second)
			}
			joining(t, l)
			lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, `msg="limiter is joining"`) || l.Status().Problem != c.problem {
				t.Errorf("%s: the last line is %s; problem %q", name, last, l.Status().Problem)
			}
		})
	}
}

// An instance that etcd was lost to before it had a share has none to hold: its limit is not used up.
func TestHoldBeforeAShareIsJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, policy := holds(t, "1000/s")
		s.tell(1, policy, 4)
		time.Sleep(2 * time.Second)
		s.tell(2, policy, 1)
		for _, later := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
			time.Sleep(later)
			joining(t, l)
		}
	})
}

func TestAJoinerIssuesNothingForTheSettleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{})
		var limited LimitError
		if err := l.Acquire(t.Context(), 0); !errors.As(err, &limited) || limited.Reason != ReasonJoining {
			t.Errorf("before anything is known: %v, want refused because joining", err)
		}
		time.Sleep(200 * time.Millisecond)
		s.tell(1, withDefaults(policyOf(t, "10/s")), 2)
		start := time.Now()
		result := make(chan time.Duration)
		go func() {
			if err := l.Acquire(t.Context(), Forever); err != nil {
				t.Error(err)
			}
			result <- time.Since(start)
		}()
		ready := make(chan time.Duration)
		go func() {
			if err := l.Ready(t.Context()); err != nil {
				t.Error(err)
			}
			ready <- time.Since(start)
		}()
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
					s.prove()
				}
			}
		}()
		// It was told at 0.2 s: the first window that starts 3 s later starts at 4 s.
		if d := <-result; d != 3800*time.Millisecond {
			t.Errorf("first permit after %v, want 3.8s", d)
		}
		if d := <-ready; d != 3800*time.Millisecond {
			t.Errorf("ready after %v, want 3.8s", d)
		}
		if n := l.TryTake(100).N(); n != 4 {
			t.Errorf("%d more permits, want 4: half of 10 less one", n)
		}
		close(stop)
	})
}

func TestOutageRules(t *testing.T) {
	for _, c := range []struct {
		outage quota.Outage
		want   int64 // permits in a window that starts 10 s after the last proof
		err    error
		logs   string
	}{
		{quota.OutageHold, 5, nil, `do="the limiter goes on with its share for as long as that lasts (outage rule hold); quota-admin doctor finds the cause"`},
		{quota.OutageStop, 0, ErrStale, `do="the limiter issues nothing (outage rule stop); quota-admin doctor finds the cause"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stub{clock: clock.New()}
			var logged bytes.Buffer
			l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			p := policyOf(t, "10/s")
			p.Outage = c.outage
			s.tell(1, withDefaults(p), 2)
			time.Sleep(3500 * time.Millisecond)
			s.prove()
			if n := l.TryTake(100).N(); n != 5 {
				t.Fatalf("%s: %d permits while fresh, want 5", c.outage, n)
			}
			time.Sleep(10 * time.Second)
			if st := l.Status(); st.State != quota.StateStale || st.ProofAge != 10*time.Second {
				t.Errorf("%s: state %q, proof age %v; want stale, 10s", c.outage, st.State, st.ProofAge)
			}
			l.core.Report(l.core.clock.Now())
			if text := logged.String(); !strings.Contains(text, c.logs) {
				t.Errorf("%s: %s is not in the log: %s", c.outage, c.logs, text)
			}
			// A readiness probe must not take an instance out of service that goes on with its share.
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if err := l.Ready(ctx); (err == nil) != (c.want > 0) {
				t.Errorf("%s: Ready: %v while stale", c.outage, err)
			}
			cancel()
			if n := l.TryTake(100).N(); n != c.want {
				t.Errorf("%s: %d permits while stale, want %d", c.outage, n, c.want)
			}
			if err := l.Acquire(t.Context(), 0); c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("%s: %v, want %v", c.outage, err, c.err)
			}
			// A waiter does not know how long the outage lasts: it waits.
			start, result := time.Now(), make(chan error)
			go func() { result <- l.Acquire(t.Context(), 3*time.Second) }()
			time.Sleep(1200 * time.Millisecond)
			s.prove()
			if err := <-result; err != nil {
				t.Errorf("%s: a waiter was not served after the outage: %v after %v", c.outage, err, time.Since(start))
			}
		})
	}
}

func TestHoldNeverGrowsWhileStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := proved(t, "10/s", 2)
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Deleted: []string{"b"}})
		time.Sleep(20 * time.Second)
		if n := l.TryTake(100).N(); n != 5 {
			t.Errorf("%d permits, want 5: the other's share was freed after the last proof", n)
		}
		for range 4 {
			s.prove()
			time.Sleep(time.Second)
		}
		if n := l.TryTake(100).N(); n != 10 {
			t.Errorf("%d permits after the outage, want 10", n)
		}
	})
}

func TestNoPolicyHealsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{clock: clock.New()}
		var logged bytes.Buffer
		l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		waiting := make(chan error)
		go func() { waiting <- l.Acquire(t.Context(), Forever) }()
		synctest.Wait()
		s.tell(1, nil, 1)
		if text := logged.String(); !strings.Contains(text, `level=WARN msg="no limit is set" provider=p do="quota-admin list shows`) {
			t.Error(text)
		}
		for _, err := range []error{<-waiting, l.Acquire(t.Context(), 0), l.Acquire(t.Context(), Forever)} {
			if !errors.Is(err, ErrNoPolicy) {
				t.Errorf("%v, want ErrNoPolicy", err)
			}
		}
		if st := l.Status(); st.State != quota.StateJoining || st.Problem != "no limit is set: quota-admin set p LIMITS; quota-admin list shows all" {
			t.Errorf("state %q, problem %q", st.State, st.Problem)
		}
		stops := policyOf(t, "1/s")
		stops.Outage = quota.OutageStop
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 2, Policy: withDefaults(stops)})
		time.Sleep(4 * time.Second)
		s.prove()
		if !l.TryAcquire() {
			t.Errorf("no permit after a policy was set: %+v", l.Status())
		}
		s.sink.Report(s.clock.Now()) // once a second, and notes the state
		logged.Reset()
		s.sink.Apply(s.clock.Now(), protocol.Change{Revision: 3, PolicyDeleted: true})
		s.prove()
		lost := cause.LostLimit("p", "1/s, set with --outage stop")
		if text := logged.String(); !strings.Contains(text, `msg="limiter is joining"`) || !strings.Contains(text, fmt.Sprintf("do=%q", cause.Command(lost))) || l.Status().Problem != lost {
			t.Errorf("after the policy was deleted: %s", text)
		}
		logged.Reset()
		s.tell(4, nil, 1) // as a store that came back empty
		if text := logged.String(); !strings.Contains(text, `level=WARN msg="no limit is set any more" provider=p was="1/s, set with --outage stop" do="quota-admin history p`) {
			t.Errorf("after a store came back empty: %s", text)
		}
		lost += "; beside that: this instance's lease has ended in etcd; it is registering again"
		s.sink.Trouble(errors.New("this instance's lease has ended in etcd; it is registering again"))
		if err := l.Acquire(t.Context(), 0); !errors.Is(err, ErrNoPolicy) || err.Error() != "consumer: p: "+lost || l.Status().Problem != lost {
			t.Errorf("%v: %q", err, l.Status().Problem)
		}
	})
}

func TestSourceCloseEndsTheLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{clock: clock.New()}
		l := open(t, s.source(), Options{})
		waiting := make(chan error)
		go func() { waiting <- l.Acquire(t.Context(), Forever) }()
		synctest.Wait()
		s.sink.Close()
		for _, err := range []error{<-waiting, l.Acquire(t.Context(), 0), l.Ready(t.Context())} {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		}
	})
}

func TestAnAnnouncedEndBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := proved(t, "10/s", 1)
		s.sink.Announce(time.Now().Add(500 * time.Millisecond).UnixNano())
		if !l.TryAcquire() {
			t.Error("refused before the announced end")
		}
		time.Sleep(500 * time.Millisecond)
		if l.TryAcquire() {
			t.Error("a permit after the announced end")
		}
	})
}

func TestGrantAllocatesNothing(t *testing.T) {
	source := Fixed(policyOf(t, "1000000000/m"))
	l := open(t, source, Options{})
	ctx := t.Context()
	for name, f := range map[string]func(){
		"TryAcquire": func() { l.TryAcquire() },
		"Acquire":    func() { _ = l.Acquire(ctx, time.Second) },
		"Take":       func() { _ = take(ctx, l, 3, Forever) },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s, granted, allocates %v times", name, n)
		}
	}
	spent := open(t, Fixed(policyOf(t, "1/m")), Options{})
	spent.TryAcquire()
	_ = spent.Acquire(ctx, 0)
	for name, f := range map[string]func(){
		"TryAcquire":                func() { spent.TryAcquire() },
		"Acquire":                   func() { _ = spent.Acquire(ctx, 0) },
		"Acquire, too short a wait": func() { _ = spent.Acquire(ctx, time.Nanosecond) },
	} {
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s, refused, allocates %v times", name, n)
		}
	}
}
