package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// connectError says whether making a client failed because etcd does not answer
// or because it does not let the user in. With a user the client logs in at
// once; without one, nothing of this can happen before the first request.
func connectError(err error) error {
	if _, ok := errors.AsType[*etcdflags.UsageError](err); ok {
		return err
	}
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserNotFound),
		status.Code(err) == codes.InvalidArgument, status.Code(err) == codes.Unauthenticated:
		return fmt.Errorf("log in: %w: %w", coordinator.ErrPermission, err)
	case errors.Is(err, context.DeadlineExceeded),
		status.Code(err) == codes.Unavailable, status.Code(err) == codes.DeadlineExceeded:
		return fmt.Errorf("log in: %w: %w", coordinator.ErrUnreachable, err)
	}
	return err
}

// explain adds to an error what helps to mend it. For an etcd that does not
// answer it asks each endpoint how far a connection gets.
func (a *app) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, coordinator.ErrUnreachable):
		hints := a.etcd.Diagnose(ctx)
		return &hinted{err, append(hints,
			"check --endpoints or QUOTIENT_ENDPOINTS, and etcd itself: etcdctl endpoint health --endpoints="+strings.Join(a.etcd.Endpoints, ","))}
	case errors.Is(err, coordinator.ErrPermission) && a.etcd.User == "":
		return &hinted{err, []string{"no user was given: set --user or QUOTIENT_USER, or a client certificate by --cert and --key"}}
	case errors.Is(err, coordinator.ErrPermission):
		return &hinted{err, []string{"check the password and the roles of user " + a.etcd.User + ": etcdctl user get " + a.etcd.User}}
	}
	return err
}
