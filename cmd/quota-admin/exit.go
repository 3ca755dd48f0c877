package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
)

// usage is an error of how the tool was called.
type usage struct {
	problem string
	command string // whose help tells more
}

func (u *usage) Error() string { return u.problem }

// usageError says what is wrong with the arguments of cmd.
func usageError(cmd *cobra.Command, format string, args ...any) error {
	return &usage{problem: fmt.Sprintf(format, args...), command: cmd.CommandPath()}
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
	text := strings.TrimPrefix(err.Error(), "coordinator: ")
	f := failure{Error: text, Kind: "failed", ExitCode: exitFailed}
	var (
		use      *usage
		flag     *etcdflags.UsageError
		syntax   *quota.SyntaxError
		conflict *coordinator.ConflictError
		hinted   *hinted
	)
	switch {
	case errors.As(err, &use):
		f.Kind, f.ExitCode = "usage", exitUsage
		f.Hints = []string{"see " + use.command + " --help"}
	case errors.As(err, &flag):
		f.Kind, f.ExitCode = "usage", exitUsage
	case errors.As(err, &syntax):
		f.Kind, f.ExitCode, f.pointer = "usage", exitUsage, syntax.Point()
		f.Offset = &syntax.Offset
	case errors.Is(err, coordinator.ErrNotFound):
		f.Kind, f.ExitCode = "not_found", exitNotFound
	case errors.As(err, &conflict):
		f.Kind, f.ExitCode, f.Provider = "conflict", exitConflict, conflict.Provider
		f.Have, f.Want = &conflict.Have, &conflict.Want
	case errors.Is(err, coordinator.ErrPermission):
		f.Kind, f.ExitCode = "permission", exitPermission
	case errors.Is(err, coordinator.ErrUnreachable), errors.Is(err, context.DeadlineExceeded):
		f.Kind, f.ExitCode = "unreachable", exitUnreachable
	}
	if errors.As(err, &hinted) {
		f.Hints = append(f.Hints, hinted.hints...)
	}
	return f
}

// notFound is an error for exit code 3 in words of its own.
type notFound string

func (n notFound) Error() string        { return string(n) }
func (n notFound) Is(target error) bool { return target == coordinator.ErrNotFound }

// hinted is an error together with lines that help to mend it.
type hinted struct {
	error
	hints []string
}

func (h *hinted) Unwrap() error { return h.error }

// fail shows err on stderr in the format asked for and returns the exit code.
func (a *app) fail(err error) int {
	f := classify(err)
	if a.format != formatTable {
		_ = a.format.write(a.stderr, f) // there is nowhere else to say it
		return f.ExitCode
	}
	fmt.Fprintln(a.stderr, "quota-admin: "+clean(f.Error))
	for line := range strings.SplitSeq(f.pointer, "\n") {
		if line != "" {
			fmt.Fprintln(a.stderr, "  "+clean(line))
		}
	}
	for _, hint := range f.Hints {
		fmt.Fprintln(a.stderr, "  "+clean(hint))
	}
	return f.ExitCode
}
