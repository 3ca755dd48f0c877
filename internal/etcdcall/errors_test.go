package etcdcall

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// An error means the same as etcd's client returns it and as gRPC does, and says what to do: only where etcd does not
// answer that is to wait.
func TestKindsOfErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err error
		is  []error // of all kinds
		do  string
	}{
		{rpctypes.ErrGRPCUserEmpty, []error{ErrPermission, cause.ErrNoUser}, "give this program an etcd user"},
		{fmt.Errorf("log in: %w", rpctypes.ErrUserEmpty), []error{ErrPermission, cause.ErrNoUser}, "give this program an etcd user"},
		{rpctypes.ErrGRPCAuthFailed, []error{ErrPermission, cause.ErrLogin}, "correct the etcd user and the password"},
		{rpctypes.ErrAuthFailed, []error{ErrPermission, cause.ErrLogin}, "correct the etcd user and the password"},
		{rpctypes.ErrGRPCInvalidAuthToken, []error{ErrPermission, cause.ErrToken}, "nothing: this program logs in again; if that is refused, correct the etcd user"},
		{rpctypes.ErrGRPCPermissionDenied, []error{ErrPermission}, "quota-admin roles consumer P --to USER"},
		{rpctypes.ErrPermissionDenied, []error{ErrPermission}, "quota-admin roles consumer P --to USER"},
		{rpctypes.ErrGRPCNoLeader, []error{ErrUnreachable}, cause.LeaveRunning},
		{status.Error(codes.Unavailable, "connection refused"), []error{ErrUnreachable}, cause.LeaveRunning},
		{rpctypes.ErrGRPCNoSpace, nil, cause.LeaveRunning},
		{io.EOF, nil, cause.LeaveRunning},
	} {
		wrapped := Wrap(t.Context(), "read", c.err)
		var is []error
		for _, kind := range []error{ErrUnreachable, ErrPermission, cause.ErrNoUser, cause.ErrLogin, cause.ErrToken} {
			if errors.Is(wrapped, kind) {
				is = append(is, kind)
			}
		}
		if fmt.Sprint(is) != fmt.Sprint(c.is) || len(is) != len(c.is) {
			t.Errorf("%v is %v, want %v", c.err, is, c.is)
		}
		if do := cause.Remedy(wrapped); !strings.HasPrefix(do, c.do) {
			t.Errorf("%v: %s, want %s", c.err, do, c.do)
		}
	}
}

// What gRPC says of a failure ends where the failure is told.
func TestErrorsAreNotInTheWordsOfGRPC(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`read: etcd cannot be reached: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`: "read: etcd cannot be reached: dial tcp 127.0.0.1:1: connect: connection refused",
		`log in: rpc error: code = DeadlineExceeded desc = latest balancer error: last connection error: desc = "transport: x"`:                                                           "log in: x",
		"coordinator: a limit is missing": "a limit is missing",
		"admin: a reason is too long":     "a reason is too long",
	} {
		if got := Plain(text); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
