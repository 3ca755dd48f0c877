package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
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

// usage is an error of how the tool was called.
type usage struct {
	problem string
	command string // whose help tells more
}

func (u *usage) Error() string { return u.problem }

// usageError says what is wrong with the arguments of cmd.
func usageError(cmd *cobra.Command, text string, args ...any) error {
	return &usage{problem: fmt.Sprintf(text, args...), command: cmd.CommandPath()}
}

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

// classify turns an error into what is shown, and an exit code.
func classify(err error) failure {
	// Which package failed is of no use to operators.
	text := strings.TrimPrefix(format.OneLine(err), "coordinator: ")
	f := failure{Error: text, Kind: "failed", ExitCode: exitFailed}
	var (
		use      *usage
		flag     *etcdflags.UsageError
		syntax   *quota.SyntaxError
		conflict *coordinator.ConflictError
		field    *quota.FieldError
		hinted   *hinted
	)
	kinds := []struct {
		is   error
		kind string
		code int
	}{
		{errRefused, "refused", exitRefused}, {errLate, "not_applied_in_time", exitLate},
		{coordinator.ErrNotFound, "not_found", exitNotFound},
		{coordinator.ErrPermission, "permission", exitPermission},
		{coordinator.ErrUnreachable, "unreachable", exitUnreachable}, {context.DeadlineExceeded, "unreachable", exitUnreachable},
	}
	for _, k := range kinds {
		if errors.Is(err, k.is) {
			f.Kind, f.ExitCode = k.kind, k.code
			break
		}
	}
	switch {
	case errors.As(err, &use):
		f.Kind, f.ExitCode = "usage", exitUsage
		f.Hints = []string{"see " + use.command + " --help"}
	case errors.As(err, &flag):
		f.Kind, f.ExitCode = "usage", exitUsage
	case errors.As(err, &syntax):
		f.Kind, f.ExitCode, f.pointer = "usage", exitUsage, syntax.Point()
		f.Offset = &syntax.Offset
	case errors.As(err, &field) && f.ExitCode == exitFailed:
		f.Kind, f.ExitCode = "refused", exitRefused
	case errors.As(err, &conflict):
		f.Kind, f.ExitCode, f.Provider = "conflict", exitConflict, conflict.Provider
		f.Have, f.Want = &conflict.Have, &conflict.Want
	}
	if errors.As(err, &hinted) {
		f.Hints = append(f.Hints, hinted.hints...)
	}
	return f
}

// Kinds of errors that only this tool has.
var (
	errRefused = errors.New("refused by a guard rail")
	errLate    = errors.New("written, but not applied in time")
)

// kinded is an error of a kind, in words of its own.
type kinded struct {
	error
	kind error
}

func (k kinded) Is(target error) bool { return target == k.kind }
func (k kinded) Unwrap() error        { return k.error }

// notFound is an error for exit code 3.
func notFound(text string) error { return kinded{errors.New(text), coordinator.ErrNotFound} }

// refused says that a guard rail does not let a change pass.
func refused(err error) error { return kinded{fmt.Errorf("refused: %w", err), errRefused} }

// hinted is an error together with lines that help to mend it.
type hinted struct {
	error
	hints []string
}

func (h *hinted) Unwrap() error { return h.error }

// fail shows err on stderr in the format asked for and returns the exit code.
func (a *app) fail(err error) int {
	f := classify(err)
	if a.format != format.Table {
		_ = a.format.Write(a.stderr, f) // there is nowhere else to say it
		return f.ExitCode
	}
	fmt.Fprintln(a.stderr, "quota-admin: "+format.Clean(f.Error))
	for line := range strings.SplitSeq(f.pointer, "\n") {
		if line != "" {
			fmt.Fprintln(a.stderr, "  "+format.Clean(line))
		}
	}
	for _, hint := range f.Hints {
		fmt.Fprintln(a.stderr, "  "+format.Clean(hint))
	}
	return f.ExitCode
}
