package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

func TestLeaveAnnouncesServesAndGoes(t *testing.T) {
	f := setup(t)
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: 500 * time.Millisecond}}
	if _, err := f.admin.Put(t.Context(), "p", p); err != nil {
		t.Fatal(err)
	}
	stays, _ := f.subscribe(f.join(Options{Name: "stays"}), "p")
	s := f.join(Options{Name: "goes"})
	goes, _ := f.subscribe(s, "p")
	await.Until(t, "both are there", func() bool { return stays.is(members(2))() && goes.is(proved)() })
	result := make(chan error)
	go func() { result <- s.Shutdown(t.Context()) }()
	await.Until(t, "the end is announced", stays.is(func(r *recorder) bool {
		return slices.ContainsFunc(r.view.Instances, func(i protocol.Instance) bool { return i.Name == "goes" && !i.Until.IsZero() })
	}))
	if goes.told().until == 0 || goes.is(func(r *recorder) bool { return r.closed })() {
		t.Error("who leaves must be bound by the end, and serve until then")
	}
	until := time.Unix(0, goes.told().until)
	if err := <-result; err != nil {
		t.Error(err)
	}
	if time.Now().Before(until) {
		t.Error("left before the announced end")
	}
	await.Until(t, "the key is gone", stays.is(members(1)))
	if err := s.Close(); err != nil {
		t.Errorf("Close after Shutdown: %v", err)
	}
}

func TestLeaveThatIsCutShortSaysSo(t *testing.T) {
	f := setup(t)
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: time.Minute}, Release: quota.Release{Shape: quota.ShapeSliding}} // an end S ahead
	if _, err := f.admin.Put(t.Context(), "p", p); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer // read when the first Shutdown has returned
	s := f.join(Options{Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	ctx, cancel := context.WithCancel(t.Context())
	returned := leaving(ctx, s)
	await.Until(t, "the end is announced", func() bool { return r.told().until != 0 })
	until := time.Unix(0, r.told().until)
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "before the announced end") {
		t.Errorf("%v, want it to say that the end was cut short", err)
	}
	await.Until(t, "the first Shutdown returns", func() bool { ok, _ := returned(); return ok })
	if said := fmt.Sprintf(`msg="shutting down: serves until its share is handed over" provider=p until=%q`, until.UTC().Format("15:04:05.000 UTC")); !strings.Contains(logs.String(), said) {
		t.Errorf("no %q in\n%s", said, logs.String())
	}
	if !r.told().closed {
		t.Error("the sink is still open")
	}
	if _, _, err := s.subscribe("p", func() feed.Sink { return &recorder{} }); !errors.Is(err, errSessionClosed) {
		t.Errorf("%v, want errSessionClosed", err)
	}
}

// leaving starts a Shutdown and returns a function that reports whether it has
// returned, and what.
func leaving(ctx context.Context, s *Session) func() (bool, error) {
	result := make(chan error, 1)
	go func() { result <- s.Shutdown(ctx) }()
	return func() (bool, error) {
		select {
		case err := <-result:
			return true, err
		default:
			return false, nil
		}
	}
}

// Without etcd nothing can be announced. Shutdown must give up after the timeout of
// one call, not one for each provider, and whether or not a lease is at hand.
func TestLeaveWhileEtcdIsAwayGivesUp(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lease lost: ", lost), func(t *testing.T) {
			t.Parallel()
			cluster, client := etcdtest.New(t, embedded.Options{})
			f := setupOn(t, client)
			f.kv = etcdcall.NewKV(client, time.Second) // as long as one call may take
			s := f.join(Options{TTL: 30 * time.Second})
			s.closing = 50 * time.Millisecond
			var sinks []*recorder
			for i := range 20 {
				f.set(fmt.Sprint("p/", i), "10/s")
				r, _ := f.subscribe(s, fmt.Sprint("p/", i))
				sinks = append(sinks, r)
			}
			for _, r := range sinks {
				await.Until(t, "a proof", r.is(proved))
			}
			cluster.Stop(0)
			if lost {
				s.step(session.Leased{})
			}
			returned := leaving(t.Context(), s)
			var err error
			await.Until(t, "Shutdown returns", func() (ok bool) { ok, err = returned(); return ok })
			if !errors.Is(err, ErrUnreachable) {
				t.Errorf("%v, want ErrUnreachable", err)
			}
			for _, r := range sinks {
				if !r.told().closed {
					t.Error("a sink is still open")
				}
			}
		})
	}
}

// Nobody but its caller can tell the others that they wait for the lease.
func TestACloseThatLeavesItsKeySaysSo(t *testing.T) {
	t.Parallel()
	cluster, client := etcdtest.New(t, embedded.Options{})
	f := setupOn(t, client)
	f.set("p", "10/s")
	s := f.join(Options{TTL: 20 * time.Second})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	cluster.Stop(0)
	s.closing = 50 * time.Millisecond
	if err := s.Close(); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "the other instances use this share when its lease (20s) and the settle time are over") {
		t.Errorf("%v, want it to say that the keys are left", err)
	}
	if !r.told().closed {
		t.Error("the sink is still open")
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// A slow etcd is no reason to leave keys behind while there is time: only Close is in a hurry.
func TestShutdownWaitsLongerForEtcdThanClose(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	s.closing = 0 // Close would leave them
	returned := leaving(t.Context(), s)
	var err error
	await.Until(t, "Shutdown returns", func() (ok bool) { ok, err = returned(); return ok })
	if err != nil {
		t.Error(err)
	}
}

// Without its key it has no share until the end that it announced, and must not come
// back as another incarnation.
func TestALeaverWhoseKeyGoesDoesNotRegisterAnew(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lease", "key"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Release: quota.Release{Shape: quota.ShapeSliding}} // an end S ahead
			if _, err := f.admin.Put(t.Context(), "p", p); err != nil {
				t.Fatal(err)
			}
			s := f.join(Options{TTL: 2 * time.Second})
			r, _ := f.subscribe(s, "p")
			await.Until(t, "a proof", r.is(proved))
			returned := leaving(t.Context(), s)
			await.Until(t, "the end is announced", r.is(func(r *recorder) bool {
				return slices.ContainsFunc(r.view.Instances, func(i protocol.Instance) bool { return !i.Until.IsZero() })
			}))
			f.lose(s, r.told().self, how)
			var err error
			await.Until(t, "Shutdown returns", func() (ok bool) { ok, err = returned(); return ok })
			if err != nil {
				t.Error(err)
			}
			if left, err := f.instances("p"); err != nil || len(left) != 0 {
				t.Errorf("%d instances are left, %v: who leaves must not register anew", len(left), err)
			}
			if log := r.told().log; strings.Count(log, "reset") != 1 {
				t.Errorf("it began anew: %q", log)
			}
		})
	}
}

// TestCloseSaysThatNothingIsIssuedAnyMore: a session's close and a single provider's
// promise it, and then the key goes.
func TestCloseSaysThatNothingIsIssuedAnyMore(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"session", "provider"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			stays, _ := f.subscribe(f.join(Options{Name: "stays", TTL: time.Minute}), "p")
			s := f.join(Options{Name: "goes", TTL: time.Minute})
			r, leave := f.subscribe(s, "p")
			await.Until(t, "both are there", func() bool { return stays.is(members(2))() && r.is(proved)() })
			f.set("p", "10/s") // both take part at once
			asked := s.o.Clock.Wall()
			if how == "session" {
				leave = s.Close
			}
			if err := leave(); err != nil {
				t.Error(err)
			}
			await.Until(t, "the key is gone", stays.is(members(1)))
			ends := stays.told().ends
			if len(ends) != 1 || ends[0].Until.IsZero() || ends[0].ID != r.told().self {
				t.Fatalf("it promised %+v", ends)
			}
			if until := ends[0].Until.UnixNano(); until < asked || until > s.o.Clock.Wall() {
				t.Errorf("the end is %v after Close was called", time.Duration(until-asked))
			}
		})
	}
}

// losing is a recorder whose key goes while its limiter is closed.
type losing struct {
	*recorder
	lose func()
}

func (l *losing) Close() { l.recorder.Close(); l.lose() }

// A limiter whose key is gone already when it is closed, as after a stall, has left as it should.
func TestALimiterWhoseKeyIsGoneIsClosed(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	s := f.join(Options{TTL: time.Minute})
	r := &losing{recorder: &recorder{}}
	r.lose = func() { f.lose(s, r.told().self, "key") }
	_, leave, err := s.subscribe("p", func() feed.Sink { return r })
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "a proof", r.is(proved))
	if err := leave(); err != nil {
		t.Error(err)
	}
	if !r.told().closed {
		t.Error("the sink is still open")
	}
	if left, err := f.instances("p"); err != nil || len(left) != 0 {
		t.Errorf("%d instances are left, %v", len(left), err)
	}
}

// lose takes an incarnation's lease or key away.
func (f *fixture) lose(s *Session, id, how string) {
	f.t.Helper()
	var err error
	if how == "key" {
		_, err = f.client.Delete(f.t.Context(), f.keys.Instance("p", id))
	} else {
		s.mu.Lock()
		l := s.mu.Lease()
		s.mu.Unlock()
		_, err = f.client.Revoke(f.t.Context(), clientv3.LeaseID(l.ID))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func TestASecondLeaveWaitsForTheSameEnd(t *testing.T) {
	f := setup(t)
	p := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}, Timing: quota.Timing{Settle: 500 * time.Millisecond}}
	if _, err := f.admin.Put(t.Context(), "p", p); err != nil {
		t.Fatal(err)
	}
	s := f.join(Options{})
	r, _ := f.subscribe(s, "p")
	await.Until(t, "a proof", r.is(proved))
	first := leaving(t.Context(), s)
	await.Until(t, "the end is decided", r.is(func(r *recorder) bool { return r.until != 0 }))
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if until := r.told().until; s.o.Clock.Wall() < until {
		t.Error("the second Shutdown closed before the announced end")
	}
	var err error
	await.Until(t, "the first returns too", func() (ok bool) { ok, err = first(); return ok })
	if err != nil {
		t.Error(err)
	}
}

// Operators see the debt of an instance that has left, however it went, and nothing of one
// that left without.
func TestADebtOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.set("p", "10/s")
	for name, test := range map[string]struct {
		debt  int64
		leave func(s *Session, provider func() error) error
	}{
		"closes its limiter":   {1, func(_ *Session, provider func() error) error { return provider() }},
		"closes its session":   {2, func(s *Session, _ func() error) error { return s.Close() }},
		"leaves":               {3, func(s *Session, _ func() error) error { return s.Shutdown(t.Context()) }},
		"owes nothing":         {0, func(s *Session, _ func() error) error { return s.Close() }},
		"owes nothing, leaves": {0, func(_ *Session, provider func() error) error { return provider() }},
	} {
		s := f.join(Options{Name: name})
		r, provider := f.subscribe(s, "p")
		await.Until(t, "a proof", r.is(proved))
		r.is(func(r *recorder) bool { r.debt = test.debt; return true })()
		if err := test.leave(s, provider); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		fleet, err := feed.Inside(f.admin).Fleet(t.Context(), "p")
		if err != nil || len(fleet.Instances) != 0 {
			t.Fatalf("%s: %d instances, %v", name, len(fleet.Instances), err)
		}
		left := slices.IndexFunc(fleet.Left, func(i protocol.InstanceStatus) bool { return i.Instance.Name == name })
		if (left >= 0) != (test.debt > 0) || left >= 0 && (fleet.Left[left].Report.Debt != test.debt || fleet.Left[left].Instance.ID != r.told().self) {
			t.Errorf("%s: %+v", name, fleet.Left)
		}
	}
	reports, err := f.client.Get(t.Context(), f.prefix+"reports/", clientv3.WithPrefix())
	if err != nil || len(reports.Kvs) != 3 {
		t.Fatalf("%d reports, %v", len(reports.Kvs), err)
	}
	for _, kv := range reports.Kvs {
		if l, err := f.client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease)); err != nil || l.GrantedTTL != 3600 {
			t.Errorf("%+v, %v", l, err)
		}
	}
}
