package coordinator

import (
	"context"
	"errors"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// Errors, for errors.Is. They are wrapped with the operation and etcd's message.
var (
	// ErrUnreachable: etcd did not answer in time.
	ErrUnreachable = etcdcall.ErrUnreachable
	// ErrPermission: etcd does not allow this user the operation.
	ErrPermission = etcdcall.ErrPermission
)

var errNilContext = errors.New("ctx is nil: use context.Background()")

var errSessionClosed = errors.New("session is closed")

// classify wraps an error of etcd's client in one of this package's, with the
// attempted operation. A context that the caller cancelled comes back as it is.
func classify(ctx context.Context, attempt string, err error) error {
	return etcdcall.Wrap(ctx, "coordinator: "+attempt, err)
}
