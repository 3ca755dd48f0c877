package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/quota"
)

// The exit codes, which scripts rely on.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitUnreachable = 5
	exitPermission  = 6
	exitRefused     = 7
	exitLate        = 8
)

// Kinds of errors that only this tool has.
var (
	errUsage   = errors.New("bad usage")
	errRefused = errors.New("refused by a guard rail")
	errLate    = errors.New("written, but not applied in time, as far as is known")
)

// fault is an error of a kind, in words of its own, with lines that help to mend it.
type fault struct {
	error
	kind  error
	hints []string
}

func (f *fault) Is(target error) bool { return f.kind != nil && target == f.kind }
func (f *fault) Unwrap() error        { return f.error }

func usageError(cmd *cobra.Command, text string, args ...any) error {
	return &fault{fmt.Errorf(text, args...), errUsage, []string{"see " + cmd.CommandPath() + " --help"}}
}

func notFound(text string, hints ...string) error {
	return &fault{errors.New(text), admin.ErrNotFound, hints}
}

// refused says that a guard rail does not let a change pass.
func refused(err error) error { return &fault{fmt.Errorf("refused: %w", err), errRefused, nil} }

// failure is an error as -o json and -o yaml show it.
type failure struct {
	Error    string   `json:"error"`
	Kind     string   `json:"kind"`
	ExitCode int      `json:"exit_code"`
	Hints    []string `json:"hints,omitempty"`
	// Offset is the byte of the limits at which they are wrong.
	Offset *int `json:"offset,omitempty"`
	// Provider, Have and Want belong to a conflict.
	Provider string `json:"provider,omitempty"`
	Have     *int64 `json:"have_revision,omitempty"`
	Want     *int64 `json:"want_revision,omitempty"`

	pointer string // two lines: a text, and a caret under the place
}

var kinds = []struct {
	is   error
	kind string
	code int
}{
	{errUsage, "usage", exitUsage},
	{errRefused, "refused", exitRefused}, {errLate, "not_applied_in_time", exitLate},
	{admin.ErrNotFound, "not_found", exitNotFound},
	{coordinator.ErrPermission, "permission", exitPermission},
	{coordinator.ErrUnreachable, "unreachable", exitUnreachable}, {context.DeadlineExceeded, "unreachable", exitUnreachable},
}

func classify(err error) failure {
	// Which package failed is of no use to operators.
	f := failure{Error: etcdcall.Plain(format.OneLine(err)), Kind: "failed", ExitCode: exitFailed}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			f.Kind, f.ExitCode = k.kind, k.code
			break
		}
	}
	if known, ok := errors.AsType[*fault](err); ok {
		f.Hints = known.hints
	}
	if f.ExitCode == exitUsage {
		return f // with hints of its own
	} else if _, ok := errors.AsType[*etcdflags.UsageError](err); ok {
		f.Kind, f.ExitCode = "usage", exitUsage
	} else if syntax, ok := errors.AsType[*quota.SyntaxError](err); ok {
		f.Kind, f.ExitCode, f.pointer, f.Offset = "usage", exitUsage, syntax.Point(), &syntax.Offset
	} else if conflict, ok := errors.AsType[*admin.ConflictError](err); ok {
		f.Kind, f.ExitCode, f.Provider, f.Have, f.Want = "conflict", exitConflict, conflict.Provider, &conflict.Have, &conflict.Want
	} else if _, ok := errors.AsType[*quota.FieldError](err); ok && f.ExitCode == exitFailed {
		f.Kind, f.ExitCode = "refused", exitRefused
	}
	return f
}

func (a *app) fail(err error) int {
	f := classify(err)
	if a.format != format.Table {
		_ = a.format.Write(a.stderr, f) // there is nowhere else to say it
		return f.ExitCode
	}
	fmt.Fprintln(a.stderr, "quota-admin: "+format.Clean(f.Error))
	for _, line := range append(strings.Split(f.pointer, "\n"), f.Hints...) {
		if line != "" {
			fmt.Fprintln(a.stderr, "  "+format.Clean(line))
		}
	}
	return f.ExitCode
}

// connectError says whether etcd does not answer, or does not let the user in. Only with
// a user does the client ask etcd anything before the first request.
func connectError(err error) error {
	kind := etcdcall.Kind(err)
	if kind == nil || errors.Is(err, kind) { // bad flags, or a log-in that says itself that it took too long
		return err
	}
	return fmt.Errorf("log in: %w: %w", kind, err)
}

// explain adds to an error what helps to mend it. For an etcd that does not
// answer it asks each endpoint how far a connection gets.
func (a *app) explain(ctx context.Context, err error) error {
	known, explained := errors.AsType[*fault](err)
	flag, wrong := errors.AsType[*etcdflags.UsageError](err)
	switch {
	case explained && len(known.hints) > 0:
	case wrong && flag.Source == "--key" && a.etcd.Cert == "":
		return &fault{err, nil, []string{"if a key of a provider is meant: quota-admin budget PROVIDER --key KEY shows what is left of one, quota-admin top PROVIDER --by key the busiest"}}
	case errors.Is(err, coordinator.ErrUnreachable):
		return &fault{err, nil, append(a.etcd.Diagnose(ctx, err),
			"--endpoints or QUOTIENT_ENDPOINTS name other addresses; quota-admin doctor says more")}
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &fault{err, nil, []string{"etcd's database is full: quota-admin doctor says what to do"}}
	case errors.Is(err, coordinator.ErrPermission):
		return &fault{err, nil, []string{a.permissionHint()}}
	case errors.Is(err, admin.ErrNotFound):
		if !explained {
			return &fault{err, nil, []string{"quota-admin list shows the providers, set adds one"}}
		}
	}
	return err
}

// permissionHint says which etcd user was refused, and where to look.
func (a *app) permissionHint() string {
	user, check := a.etcd.User, "check the password and"
	if user == "" {
		user = a.etcd.CertificateUser()
		check = "the client certificate names the etcd user " + user + ": check"
	}
	switch {
	case user != "":
		return check + " the roles of user " + user + ": etcdctl user get " + user + "; quota-admin roles grants them"
	case a.etcd.Cert != "":
		return "the client certificate " + a.etcd.Cert + " has no common name, so it names no etcd user: use another, or set --user"
	}
	return "no user was given: set --user or QUOTIENT_USER, or a client certificate by --cert and --key"
}
