package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is one lease of the session. It serves to remove the keys of the dead;
// no share depends on when it ends.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration
}

func (s *Session) grant(ctx context.Context, ttl time.Duration) (*lease, error) {
	r, err := s.client.Grant(ctx, int64(ttl.Round(time.Second)/time.Second))
	if err != nil {
		return nil, classify(ctx, "get a lease", err)
	}
	return &lease{id: r.ID, ttl: time.Duration(r.TTL) * time.Second}, nil
}

// keepLease renews the lease, and gets another when it is gone, until Close. It
// begins with l, or without any.
func (s *Session) keepLease(l *lease) {
	ttl := s.o.TTL
	for {
		if l == nil {
			if l = s.regain(ttl); l == nil {
				return
			}
		}
		s.step(leased{l})
		s.renew(l)
		s.step(leased{})
		if s.ctx.Err() != nil {
			return
		}
		s.o.Logger.Warn("lease is gone, registering again", "lease", l.id)
		ttl, l = s.nextTTL(l.ttl), nil
	}
}

// regain tries to get a lease until it has one, or Close; then it returns nil.
func (s *Session) regain(ttl time.Duration) *lease {
	const of = "the lease"
	for wait := (backoff{}); ; {
		c, done := s.bounded(clientv3.WithRequireLeader(s.ctx))
		l, err := s.connect(c, ttl)
		done()
		switch {
		case err == nil:
			s.step(problem{of, nil})
			return l
		case s.ctx.Err() != nil:
			return nil
		}
		s.redialNow()
		s.step(problem{of, err})
		if !wait.sleep(s.ctx) {
			return nil
		}
	}
}

// mostTTL is the longest lease by nextTTL; a longer TTL of Options stays.
const mostTTL = 30 * time.Second

// nextTTL returns how long the lease shall last that follows one that was lost. In
// a large fleet a lost lease is most often the work of an overload, and makes it
// worse: everybody is told of an instance that goes and of one that comes. So the
// next one lasts twice as long.
func (s *Session) nextTTL(lost time.Duration) time.Duration {
	s.mu.Lock()
	large := s.mu.holdBack() > 0
	s.mu.Unlock()
	if large {
		return max(s.o.TTL, min(2*lost, mostTTL))
	}
	return s.o.TTL
}

// renew keeps the lease alive until etcd says that it is gone, or Close. An etcd
// that does not answer is asked again: only it knows whether the lease lives.
func (s *Session) renew(l *lease) {
	pause := l.ttl / 3
	failing := false
	for sleep(s.ctx, pause) {
		c, done := context.WithTimeout(s.ctx, max(l.ttl/2, time.Second))
		err := s.firstOf(c, l.ttl/10, len(s.client.Endpoints()), func() error {
			_, err := s.client.KeepAliveOnce(c, l.id)
			return err
		})
		done()
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return
		case err != nil && !failing && s.ctx.Err() == nil:
			s.o.Logger.Warn("lease cannot be renewed", "error", classify(s.ctx, "renew the lease", err))
		case err == nil && failing:
			s.o.Logger.Info("lease is renewed again")
		}
		failing = err != nil
		pause = l.ttl / 3
		if failing {
			pause = jitter(500 * time.Millisecond)
		}
	}
}

// firstOf asks until one answer is good, or says that the lease is gone, or ctx
// ends. A member that is cut off from its peers takes questions, but never answers.
// So if the first is not answered well in time it asks once more for each member, in
// a row: etcd's client takes turns among them. Questions that are apart may all go
// to the same one, as often as the session's other calls come in between.
func (s *Session) firstOf(ctx context.Context, patience time.Duration, members int, ask func() error) error {
	answers := make(chan error, 1+members)
	for i := range 1 + members {
		s.wg.Go(func() {
			if i == 0 || sleep(ctx, patience) {
				answers <- ask()
			}
		})
	}
	for last := error(nil); ; {
		select {
		case err := <-answers:
			if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
			last = err
		case <-ctx.Done():
			return cmp.Or(last, ctx.Err())
		}
	}
}

// backoff waits longer after each failure, with jitter: 100 ms up to 5 s.
type backoff struct{ next time.Duration }

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
)

// sleep waits and returns true, or returns false because ctx ended.
func (b *backoff) sleep(ctx context.Context) bool { return sleep(ctx, jitter(b.longer())) }

// longer returns how long to wait after another failure.
func (b *backoff) longer() time.Duration {
	b.next = min(max(firstBackoff, 2*b.next), lastBackoff)
	return b.next
}

func (b *backoff) reset() { b.next = 0 }

// jitter returns a duration between half of d and d, so that a fleet that lost
// etcd at once does not come back at once. Its source is the one that tests can repeat.
func jitter(d time.Duration) time.Duration {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return d/2 + time.Duration(binary.LittleEndian.Uint64(b[:])%uint64(d/2+1))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
