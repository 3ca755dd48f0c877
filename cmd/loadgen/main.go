package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/fleet"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/show"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/internal/load"
)

// Exit statuses.
const (
	exitHeld    = 0
	exitNotHeld = 1
	exitUsage   = 2
	exitCannot  = 3
)

func main() {
	etcdtest.RunIfMember()
	worker.RunIfChild()
	// The first interrupt ends the run early; then signals do again what they
	// always do, so the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(loadgen(ctx, os.Args[1:], config.Environment, os.Stdout, os.Stderr))
}

// loadgen is the whole command, and returns its exit status.
func loadgen(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	c, err := config.ParseFlags(args, env, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitHeld
	}
	if err != nil {
		return fail(stderr, err)
	}
	if w := c.Window(); c.Duration < w {
		return fail(stderr, fmt.Errorf("no whole window of %v fits into --duration %v: use at least --duration %v", w, c.Duration, w))
	}
	out, text, closeJSON, err := outputs(c, stdout, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	var page *os.File // nil: none is asked for
	if c.HTML != "" {
		if page, err = os.Create(c.HTML); err != nil {
			_ = closeJSON() // nothing was written
			return fail(stderr, config.Usagef("--html: %v; give a file that can be written", err))
		}
	}
	result, err := fleet.Execute(ctx, c, text, stderr)
	if err != nil {
		fail(stderr, err)
	}
	if result == nil {
		_, _ = closeJSON(), page.Close() // nothing was written
		return exitCannot
	}
	code := exitStatus(result.Verdict, err)
	if !c.Quiet {
		show.Table(text, result.Windows, c.Instances)
		fmt.Fprintln(text)
		show.Summary(text, &result.Summary)
	}
	show.Verdict(text, result.Verdict, result.Windows, &result.Summary)
	if out != nil {
		if err := errors.Join(result.WriteJSON(out), closeJSON()); err != nil {
			return fail(stderr, err)
		}
	}
	if page != nil {
		if err := errors.Join(show.Page(page, fmt.Sprintf("%d instances share %s%s", c.Instances, c.Limit, c.ShapeText()), result), page.Close()); err != nil {
			return fail(stderr, err)
		}
	}
	return code
}

// exitStatus puts a broken limit above everything else.
func exitStatus(v load.Verdict, err error) int {
	switch {
	case v == load.NotHeld:
		return exitNotHeld
	case v == load.Unknown || err != nil:
		return exitCannot
	}
	return exitHeld
}

// outputs finds where the JSON goes, if anywhere, and where the text goes:
// standard output, unless the JSON has it.
func outputs(c *config.Config, stdout, stderr io.Writer) (out, text io.Writer, closeJSON func() error, err error) {
	nothing := func() error { return nil }
	switch c.JSON {
	case "":
		return nil, stdout, nothing, nil
	case "-":
		return stdout, stderr, nothing, nil
	}
	file, err := os.Create(c.JSON) // now, so that a bad name costs no run
	if err != nil {
		return nil, nil, nothing, config.Usagef("--json: %v; give a file that can be written, or -", err)
	}
	return file, stdout, file.Close, nil
}

// fail writes an error and returns the exit status for it.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "loadgen: %v\n", err)
	var usage *config.UsageError
	var connection *etcdflags.UsageError
	if errors.As(err, &usage) || errors.As(err, &connection) {
		return exitUsage
	}
	return exitCannot
}
