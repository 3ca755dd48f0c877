package coordinator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/internal/session"
)

func (s *Session) grant(ctx context.Context, ttl time.Duration) (session.Lease, error) {
	r, err := s.newLease(ctx, int64(ttl.Round(time.Second)/time.Second))
	if err != nil {
		return session.Lease{}, classify(ctx, "get a lease", err)
	}
	return session.Lease{ID: int64(r.ID), TTL: time.Duration(r.TTL) * time.Second}, nil
}

// newLease asks etcd for a lease of so many seconds.
func (s *Session) newLease(ctx context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	return etcdcall.Held(&s.logins, func() (*clientv3.LeaseGrantResponse, error) { return s.client.Grant(ctx, seconds) })
}

// keepLease renews the lease, and gets another when it is gone, until Close. It
// begins with l; with the zero Lease it begins without any.
func (s *Session) keepLease(l session.Lease) {
	ttl := s.o.TTL
	for {
		if l.ID == 0 {
			if l = s.regain(ttl); l.ID == 0 {
				return
			}
		}
		s.step(session.Leased{Lease: l})
		s.step(session.Leased{Err: s.renew(l)})
		if s.ctx.Err() != nil {
			return
		}
		ttl, l = s.nextTTL(l.TTL), session.Lease{}
	}
}

// regain tries to get a lease until it has one, or Close; then it returns none.
func (s *Session) regain(ttl time.Duration) session.Lease {
	const of = "the lease"
	for wait := (backoff{}); ; {
		c, done := s.bounded(clientv3.WithRequireLeader(s.ctx))
		l, err := s.connect(c, ttl)
		done()
		switch {
		case err == nil:
			s.redial.answered()
			s.step(session.Problem{Of: of})
			return l
		case s.ctx.Err() != nil:
			return session.Lease{}
		}
		s.failed(err)
		s.step(session.Problem{Of: of, Err: err})
		if !wait.sleep(s.ctx) {
			return session.Lease{}
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
	large := s.mu.HoldBack() > 0
	s.mu.Unlock()
	if large {
		return max(s.o.TTL, min(2*lost, mostTTL))
	}
	return s.o.TTL
}

// renewal is a stream of etcd's lease service.
type renewal struct {
	pb.Lease_LeaseKeepAliveClient
	end context.CancelFunc
}

// errNoStream is told where no stream is open yet.
var errNoStream = errors.New("no stream of the lease service is open")

// renewing keeps one lease alive. It opens a stream for each renewal, and keeps the last one that
// was answered: a member that shuts down takes no new stream, but answers those that are open
// for up to 7 s. In that time leases end, and watches tell so. The next renewal goes to another
// member if one takes it.
type renewing struct {
	*Session
	lease session.Lease
	ctx   context.Context // of the streams
	mu    sync.Mutex
	// open is the stream that is kept: it was answered last, and nobody uses it now. It is nil before the first
	// answer, while again uses it, and once it has failed. Of two that wait for an answer of one stream, gRPC may
	// leave one waiting for ever.
	open *renewal
}

// once renews the lease until ctx ends: by a new stream, and if that is not answered well in
// time, by the one that is open, and by one more for each member.
func (r *renewing) once(ctx context.Context) error {
	anew := func() error { return r.anew(ctx) }
	ways := []func() error{anew, func() error { return r.again(ctx) }}
	for range r.client.Endpoints() {
		ways = append(ways, anew)
	}
	return r.firstOf(ctx, r.lease.TTL/10, ways...)
}

// anew renews the lease by a new stream.
func (r *renewing) anew(ctx context.Context) error {
	c, end := context.WithCancel(r.ctx)
	opening := context.AfterFunc(ctx, end)
	stream, err := etcdcall.HeldStream(&r.logins, func() (pb.Lease_LeaseKeepAliveClient, error) {
		return clientv3.RetryLeaseClient(r.client).LeaseKeepAlive(c, grpc.WaitForReady(true))
	})
	if !opening() || err != nil {
		end()
		return cmp.Or(err, ctx.Err())
	}
	return r.by(ctx, &renewal{stream, end})
}

// again renews the lease by the stream that is open.
func (r *renewing) again(ctx context.Context) error {
	way := r.keep(nil)
	if way == nil {
		return errNoStream
	}
	return r.by(ctx, way)
}

// by renews the lease by a stream, and keeps the stream, in place of another, if it is answered before ctx ends. If
// not, it ends.
func (r *renewing) by(ctx context.Context, way *renewal) error {
	waiting := context.AfterFunc(ctx, way.end)
	answer := &pb.LeaseKeepAliveResponse{}
	err := way.Send(&pb.LeaseKeepAliveRequest{ID: r.lease.ID})
	if err == nil || errors.Is(err, io.EOF) { // Recv says why
		answer, err = way.Recv()
	}
	if err == nil && answer.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	if waiting() && err == nil {
		way = r.keep(way)
	}
	if way != nil {
		way.end()
	}
	return err
}

// keep keeps a stream, or none, and returns the one before; nil if there was none.
func (r *renewing) keep(way *renewal) (before *renewal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.open = r.open, way
	return before
}

// renew keeps the lease alive until etcd says that it is gone, or Close. An etcd
// that does not answer is asked again: only it knows whether the lease lives. It returns why the lease was not renewed
// before it ended; nil if there is no other reason.
func (s *Session) renew(l session.Lease) (why error) {
	ctx, end := context.WithCancel(s.ctx)
	defer end()
	r := &renewing{Session: s, lease: l, ctx: ctx}
	refused := false                                                        // by the latest answer etcd does not permit it: then why says already which right is lacking
	for pause := time.Duration(0); sleepUnless(s.ctx, pause, s.renewals); { // at once, for a stream that is open
		c, done := context.WithTimeout(ctx, max(l.TTL/2, time.Second))
		err := r.once(c)
		done()
		before := why
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return why
		case !refused || !denied(err):
			why, refused = s.notRenewed(err), denied(err)
		}
		switch {
		case err != nil && before == nil && s.ctx.Err() == nil:
			s.o.Logger.Warn("the lease cannot be renewed", "error", why, "do", cause.Remedy(why))
		case err == nil && before != nil:
			s.o.Logger.Info("lease is renewed again")
		}
		if pause = l.TTL / 3; err != nil {
			s.failed(err)
			pause = jitter(500 * time.Millisecond)
		} else {
			s.redial.answered()
		}
	}
	return why
}

// notRenewed says why the lease was not renewed; nil if it was. Etcd permits that only to a user who may write all keys of the
// lease, and does not say which of them he may not write. So a key of each provider is tried.
func (s *Session) notRenewed(err error) error {
	why := classify(s.ctx, "renew the lease", err)
	if !denied(err) {
		return why
	}
	ctx, done := context.WithTimeout(s.ctx, carryTime)
	defer done()
	for _, p := range s.all() {
		if own := p.current(); own.Key != "" && denied(s.tryPut(ctx, own.Key)) {
			return lacking(why, "write", s.keys.Instances(p.Provider), p.Provider)
		}
	}
	return why
}

// firstOf asks in several ways until one answer is good, or says that the lease is gone, or
// ctx ends. A member that is cut off from its peers takes questions, but never answers. So if
// the first way is not answered well in time it tries all others, in a row: etcd's client
// takes turns among the members. Questions that are apart may all go to the same one, as often
// as the session's other calls come in between.
func (s *Session) firstOf(ctx context.Context, patience time.Duration, ways ...func() error) error {
	answers := make(chan error, len(ways))
	for i, ask := range ways {
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
			if last == nil || !errors.Is(err, errNoStream) {
				last = err
			}
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

// sleep waits for d. It returns false if the context has ended.
func sleep(ctx context.Context, d time.Duration) bool { return sleepUnless(ctx, d, nil) }

// sleepUnless is sleep that something on a channel ends before its time.
func sleepUnless(ctx context.Context, d time.Duration, over <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-over:
	}
	return true
}
