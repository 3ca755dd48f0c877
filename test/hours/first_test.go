package hours_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/quota"
)

// solo is a fleet that begins with nobody.
type solo struct {
	t       *testing.T
	connect func() *clientv3.Client
	client  *clientv3.Client
	keys    keys.Layout
}

func alone(t *testing.T, p quota.Policy, f func(s *solo)) {
	t.Helper()
	bubble(t, func(t *testing.T, connect func() *clientv3.Client) {
		s := &solo{t: t, connect: connect, client: connect()}
		var err error
		if s.keys, err = keys.New(prefix); err != nil {
			t.Fatal(err)
		}
		operator, err := admin.New(s.client, admin.Options{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		p.Limits = []quota.Limit{{Permits: 1000, Window: time.Second}}
		if _, err := operator.Put(t.Context(), provider, p); err != nil {
			t.Fatal(err)
		}
		f(s)
	})
}

func (s *solo) join() *coordinator.Session {
	s.t.Helper()
	session, err := coordinator.Join(s.t.Context(), s.connect(), coordinator.Options{Prefix: prefix, Logger: quiet})
	if err != nil {
		s.t.Fatal(err)
	}
	pass(time.Millisecond) // as some time does: nothing is proved at a clock's first instant
	return session
}

// permit returns how long the first permit of a session takes.
func (s *solo) permit(session *coordinator.Session) time.Duration {
	s.t.Helper()
	began := time.Now()
	limiter, err := consumer.Open(s.t.Context(), session, provider, consumer.Options{Logger: quiet})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := limiter.Acquire(s.t.Context(), time.Minute); err != nil {
		s.t.Fatal(err)
	}
	return time.Since(began)
}

// ends closes a session.
func (s *solo) ends(close func() error) {
	s.t.Helper()
	if err := close(); err != nil {
		s.t.Fatal(err)
	}
}

// issuers returns how many issuer keys there are.
func (s *solo) issuers() int64 {
	s.t.Helper()
	r, err := s.client.Get(s.t.Context(), s.keys.Issuers(provider), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Count
}

// soon is when the first of a fleet has a permit at the latest: twice the clock error, the
// drift until its window ends, and the rest of a window and its guard.
const soon = 1250 * time.Millisecond

// TestAFleetOfOneStartsAtOnce starts one instance after the other, at several parts of a
// window: each ends before the next one begins. In fake time a network takes no time.
func TestAFleetOfOneStartsAtOnce(t *testing.T) {
	alone(t, quota.Policy{}, func(s *solo) {
		for i := range 6 {
			pass(time.Second + 170*time.Millisecond)
			session := s.join()
			if took := s.permit(session); took > soon {
				s.t.Errorf("instance %d had a permit after %v", i, took)
			}
			if n := s.issuers(); n != 1 {
				s.t.Errorf("%d issuer keys of one instance", n)
			}
			if i%2 == 0 {
				s.ends(session.Close)
			} else {
				s.ends(func() error { return session.Shutdown(s.t.Context()) })
			}
			if n := s.issuers(); n != 0 {
				s.t.Errorf("%d issuer keys are left", n)
			}
		}
	})
}

// TestTheNextAfterACrashWaits: an issuer key that was left behind delays one start, and goes
// S after the next instance finds it.
func TestTheNextAfterACrashWaits(t *testing.T) {
	const settle = 20 * time.Second
	alone(t, quota.Policy{Timing: quota.Timing{Settle: settle}}, func(s *solo) {
		if _, err := s.client.Put(s.t.Context(), s.keys.Issuer(provider, "crashed"), ""); err != nil {
			s.t.Fatal(err)
		}
		session := s.join()
		took := make(chan time.Duration, 1)
		go func() { took <- s.permit(session) }()
		pass(settle - time.Second)
		if n := s.issuers(); n != 2 {
			s.t.Errorf("%d issuer keys before %v have passed", n, settle)
		}
		if d := <-took; d < settle {
			s.t.Errorf("it had a permit after %v, though another may issue", d)
		}
		pass(12 * time.Second) // some rounds
		if n := s.issuers(); n != 1 {
			s.t.Errorf("%d issuer keys after %v", n, settle+12*time.Second)
		}
		s.ends(session.Close)
		session = s.join()
		if took := s.permit(session); took > soon {
			s.t.Errorf("the next one had a permit after %v", took)
		}
		s.ends(session.Close)
	})
}
