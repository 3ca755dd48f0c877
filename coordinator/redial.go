package coordinator

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/diagnose"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
)

// The time between two attempts to connect to an etcd that is away. A large fleet spreads over more
// of it, so that etcd is not met by all at once when it is back.
const (
	redialEvery = time.Second
	redialShare = 5 * time.Millisecond // for each instance
	mostRedial  = 5 * time.Second

	// Connections are made anew when nothing was answered for firstAnew after a failure, and again every
	// anewEvery: about so long a handshake may take. TCP asks for a connection at once, after 1 s and after
	// 3 s, so one is asked for at most 2 s after a cut has ended.
	firstAnew = 2 * time.Second
	anewEvery = 5 * time.Second
)

// redialing is what is known of the way to etcd. Its zero value is ready to use.
type redialing struct {
	mu     sync.Mutex
	silent bool  // a call has failed, and none was answered since
	next   int64 // monotonic instant from which a failure ends gRPC's back-off
	anew   int64 // monotonic instant from which a failure has connections made anew, while silent
	asked  bool  // each endpoint has been asked why, while silent
}

// answered notes that etcd has answered a call.
func (r *redialing) answered() {
	r.mu.Lock()
	r.silent = false
	r.mu.Unlock()
}

// failed notes that a call has failed at the monotonic instant now, in a fleet of so many instances. It
// says what is to be done: to retry at once, to make connections anew, and to ask each endpoint why, once while nothing is
// answered.
func (r *redialing) failed(now int64, instances int) (retry, anew, ask bool) {
	spread := time.Duration(instances) * redialShare
	r.mu.Lock()
	defer r.mu.Unlock()
	if retry = now >= r.next; retry {
		r.next = now + int64(jitter(min(max(redialEvery, spread), mostRedial)))
	}
	if !r.silent {
		r.silent, r.asked, r.anew = true, false, now+int64(jitter(max(firstAnew, spread)))
	}
	if anew = now >= r.anew; anew {
		r.anew = now + int64(jitter(max(anewEvery, spread)))
		ask, r.asked = !r.asked, true
	}
	return retry, anew, ask
}

// failed is called after each call that has failed. If etcd has not answered, failed connects again without waiting any
// longer: after a long outage gRPC does so only every two minutes. A connection that stands still is given up. What calls
// failed runs under s.wg.
func (s *Session) failed(err error) {
	if errors.Is(err, ErrPermission) || errors.Is(etcdcall.Kind(err), ErrPermission) {
		s.redial.answered()
		return
	}
	s.mu.Lock()
	instances := s.mu.Largest()
	s.mu.Unlock()
	retry, anew, ask := s.redial.failed(s.o.Clock.Mono(), instances)
	if retry && !anew { // connections that are made anew wait for nothing
		etcdcall.EndBackoff(s.client)
	}
	if anew {
		s.o.Logger.Info("etcd answers nothing: connecting anew")
		etcdcall.Reconnect(s.client)
		s.step(session.Reconnected{})
		s.hearing.hangUp()
	}
	if ask {
		s.wg.Go(func() { s.sayWhy(err) })
	}
}

// sayWhy logs what keeps each endpoint from answering, such as that nobody listens, or that a certificate has expired. err is
// the error of the latest call.
func (s *Session) sayWhy(err error) {
	all := diagnose.Endpoints(s.ctx, s.client, err)
	if s.ctx.Err() == nil {
		s.o.Logger.Warn("etcd answers nothing", "found", strings.Join(diagnose.Lines(all), "; "))
	}
}
