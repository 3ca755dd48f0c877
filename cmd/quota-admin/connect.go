package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcderr"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// connectError says whether making a client failed because etcd does not answer
// or because it does not let the user in. With a user the client logs in at
// once; without one, nothing of this can happen before the first request.
func connectError(err error) error {
	if _, ok := errors.AsType[*etcdflags.UsageError](err); ok {
		return err
	}
	kind := etcderr.Kind(err)
	if status.Code(err) == codes.InvalidArgument {
		kind = coordinator.ErrPermission // how etcd refuses a password
	}
	if kind == nil {
		return err
	}
	return fmt.Errorf("log in: %w: %w", kind, err)
}

// explain adds to an error what helps to mend it. For an etcd that does not
// answer it asks each endpoint how far a connection gets.
func (a *app) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, coordinator.ErrUnreachable):
		hints := a.etcd.Diagnose(ctx)
		return &hinted{err, append(hints,
			"check --endpoints or QUOTIENT_ENDPOINTS, and etcd itself: etcdctl endpoint health --endpoints="+strings.Join(a.etcd.Endpoints, ","))}
	case errors.Is(err, coordinator.ErrPermission):
		return &hinted{err, []string{a.permissionHint()}}
	}
	return err
}

// permissionHint says which etcd user was refused, and where to look.
func (a *app) permissionHint() string {
	user, whose := a.etcd.User, "check the password and"
	if user == "" {
		user, whose = a.etcd.CertificateUser(), "the client certificate names the etcd user "+a.etcd.CertificateUser()+": check"
	}
	switch {
	case user != "":
		return whose + " the roles of user " + user + ": etcdctl user get " + user
	case a.etcd.Cert != "":
		return "the client certificate " + a.etcd.Cert + " has no common name, so it names no etcd user: use another, or set --user"
	}
	return "no user was given: set --user or QUOTIENT_USER, or a client certificate by --cert and --key"
}
