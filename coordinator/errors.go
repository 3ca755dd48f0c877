package coordinator

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors, for errors.Is. They come wrapped with what was attempted and with
// etcd's own words.
var (
	// ErrNotFound: the provider has no policy.
	ErrNotFound = errors.New("no policy is set")
	// ErrUnreachable: etcd did not answer in time.
	ErrUnreachable = errors.New("etcd cannot be reached")
	// ErrPermission: etcd refused, because of who we are.
	ErrPermission = errors.New("etcd does not permit it")
	// ErrSessionClosed: the session was closed.
	ErrSessionClosed = errors.New("session is closed")
)

// ConflictError says that a policy was changed by somebody else: it is not at
// the revision that the change was meant for. Revision 0 means not set.
type ConflictError struct {
	Provider   string
	Have, Want int64
}

// Error names both revisions and the way out.
func (e *ConflictError) Error() string {
	have := "it is not set"
	if e.Have != 0 {
		have = fmt.Sprintf("it is at revision %d", e.Have)
	}
	want := "expected it not to be set"
	if e.Want != 0 {
		want = fmt.Sprintf("expected revision %d", e.Want)
	}
	return fmt.Sprintf("policy of %s was changed by somebody else: %s, %s; look at it, then try again", e.Provider, have, want)
}

// classify wraps an error of etcd's client in one of this package's, with what
// was attempted. A context that the caller ended comes back as it is.
func classify(ctx context.Context, attempt string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); errors.Is(cause, context.Canceled) {
		return cause
	}
	kind := kindOf(err)
	if kind == nil {
		return fmt.Errorf("coordinator: %s: %w", attempt, err)
	}
	return fmt.Errorf("coordinator: %s: %w: %w", attempt, kind, err)
}

func kindOf(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthToken),
		errors.Is(err, rpctypes.ErrUserNotFound), errors.Is(err, rpctypes.ErrRoleNotFound):
		return ErrPermission
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, rpctypes.ErrNoLeader),
		errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrLeaderChanged):
		return ErrUnreachable
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		return ErrUnreachable
	case codes.PermissionDenied, codes.Unauthenticated:
		return ErrPermission
	}
	return nil
}
