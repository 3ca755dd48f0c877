// Package etcdcall calls etcd with bounds: on the time of a call, on the size of an answer and on the
// keys of a page. It also tells what an error of etcd's client means for its caller.
package etcdcall

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// The kinds of errors, for errors.Is.
var (
	// ErrUnreachable: etcd did not answer in time.
	ErrUnreachable = cause.ErrAway
	// ErrPermission: etcd refused, because of who the client is.
	ErrPermission = cause.ErrDenied
)

// Wrap wraps an error of etcd's client in its kind, with what was attempted. A
// context that the caller cancelled comes back as it is; nil stays nil.
func Wrap(ctx context.Context, attempt string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); errors.Is(ended, context.Canceled) {
		return ended
	}
	kind := Kind(err)
	if kind == nil {
		return fmt.Errorf("%s: %w", attempt, err)
	}
	why := Plain(err.Error())
	if Late(err) {
		why = "no answer in time"
	}
	return cause.Worded(fmt.Sprintf("%s: %v: %s", attempt, kind, why), kind, err)
}

// Late reports whether err says that a call's time was over before an answer came, in the words of this side or of gRPC.
func Late(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// Kind returns ErrUnreachable or ErrPermission, which may be a cause.ErrNoUser, ErrLogin or ErrToken, or nil. It takes an
// error of gRPC as one of etcd's client: streams return those.
func Kind(err error) error {
	switch err = rpctypes.Error(err); {
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return cause.ErrNoUser
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserNotFound):
		return cause.ErrLogin
	case errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return cause.ErrToken
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrRoleNotFound):
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

var (
	grpcPrefix    = regexp.MustCompile(`latest balancer error: |rpc error: code = \w+ desc = `)
	grpcTransport = regexp.MustCompile(`(?:last )?connection error: desc = "transport: (?:Error while dialing: )?([^"]*)"`)
)

// Unnamed leaves out of a message which package failed.
func Unnamed(message string) string {
	return strings.TrimPrefix(strings.TrimPrefix(message, "coordinator: "), "admin: ")
}

// Plain leaves out of a message which package failed, and how gRPC spells it: it is for
// people who know of neither.
func Plain(message string) string {
	return grpcTransport.ReplaceAllString(grpcPrefix.ReplaceAllString(Unnamed(message), ""), "$1")
}
