package coordinator

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/session"
)

// An etcd that is full, or corrupt, answers reads and keeps leases alive, and refuses writes. The
// fleet goes on by what it knows; but nothing is lent, and nothing more of long limits is had. So a
// session says that its last write was refused.

// refusal is the owner of the session's problem that etcd refuses writes.
const refusal = "writes"

// writing is what is known of the session's writes: a write that is taken ends the problem, but
// not before the next look, so that an etcd which takes one and refuses the next fills no log.
type writing struct {
	stands atomic.Bool // the problem is told
	taken  atomic.Bool // a write was taken since the last one that was refused
}

// answeredWrite notes what etcd has answered to a write.
func (s *Session) answeredWrite(err error) {
	switch code := status.Code(err); {
	case err == nil:
		s.writing.taken.Store(true)
	case (code == codes.ResourceExhausted || code == codes.DataLoss) && !etcdcall.TooLarge(err):
		s.writing.taken.Store(false)
		s.writing.stands.Store(true)
		s.step(session.Problem{Of: refusal, Err: fmt.Errorf("etcd refuses writes (%w): nothing is lent, and nothing more is had of limits above a minute and in flight, until it takes them: quota-admin doctor", rpctypes.Error(err))})
	}
}

// lookAtWrites ends the problem if etcd takes writes again.
func (s *Session) lookAtWrites() {
	if s.writing.stands.Load() && s.writing.taken.Load() {
		s.writing.stands.Store(false)
		s.step(session.Problem{Of: refusal})
	}
}
