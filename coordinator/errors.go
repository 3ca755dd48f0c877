package coordinator

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
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

// denied reports whether etcd has refused because the user's roles lack a right.
func denied(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied)
}

// lacks names the right.
func lacks(right, folder string) string {
	return "the etcd user of this program may not " + right + " " + folder
}

// lacking adds to an error which right of which provider's role that is, and what grants it.
func lacking(err error, right, folder, provider string) error {
	return cause.Worded(fmt.Sprintf("%v (%s); %s", err, lacks(right, folder), cause.GrantRole(provider)), err)
}

// tryPut asks whether the user may write a key, and writes nothing.
func (s *Session) tryPut(ctx context.Context, key string) error {
	_, err := s.kv.Txn(ctx).If(etcdcall.At(key, -1)).Then(clientv3.OpPut(key, "")).Commit()
	return err
}

// classify wraps an error of etcd's client in one of this package's, with the
// attempted operation. A context that the caller cancelled comes back as it is.
func classify(ctx context.Context, attempt string, err error) error {
	return etcdcall.Wrap(ctx, "coordinator: "+attempt, err)
}
