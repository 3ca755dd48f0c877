package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
)

// Errors, for errors.Is. They are wrapped with the operation and etcd's message. Those of etcd are
// the same values as in package coordinator.
var (
	// ErrNotFound: the provider has no policy.
	ErrNotFound = errors.New("no policy is set")
	// ErrUnreachable: etcd did not answer in time.
	ErrUnreachable = etcdcall.ErrUnreachable
	// ErrPermission: etcd does not allow this user the operation.
	ErrPermission = etcdcall.ErrPermission
)

// ConflictError reports a concurrent change. Nothing was written: read the policy again, and
// decide again.
type ConflictError struct {
	Provider string
	// Have is the revision of the policy in etcd, and Want the one that the change was meant
	// for; 0 means that no policy is set. If both are the same, overrides of keys were changed.
	Have, Want int64
}

// Error names both revisions and the way out.
func (e *ConflictError) Error() string {
	if e.Have == e.Want {
		return fmt.Sprintf("overrides of keys of %s were changed by somebody else; look at them, then try again: quota-admin history %[1]s", e.Provider)
	}
	have := "it is not set"
	if e.Have != 0 {
		have = fmt.Sprintf("it is at revision %d", e.Have)
	}
	want := "expected it not to be set"
	if e.Want != 0 {
		want = fmt.Sprintf("expected revision %d", e.Want)
	}
	return fmt.Sprintf("policy of %s was changed by somebody else: %s, %s; look at it, then try again: quota-admin history %[1]s", e.Provider, have, want)
}

// classify wraps an error of etcd's client in one of this package's, with the attempted operation. A
// context that the caller cancelled comes back as it is.
func classify(ctx context.Context, attempt string, err error) error {
	return etcdcall.Wrap(ctx, "admin: "+attempt, err)
}
