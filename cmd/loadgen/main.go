package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

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
	runIfChild()
	// The first interrupt ends the run early; then signals do again what they
	// always do, so the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(loadgen(ctx, os.Args[1:], environment, os.Stdout, os.Stderr))
}

// loadgen is the whole command, and returns its exit status.
func loadgen(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) int {
	c, err := parseFlags(args, env, stdout)
	if errors.Is(err, pflag.ErrHelp) {
		return exitHeld
	}
	if err != nil {
		return fail(stderr, err)
	}
	if w := c.window(); c.duration < w {
		return fail(stderr, fmt.Errorf("no whole window of %v fits into --duration %v: use at least --duration %v", w, c.duration, w))
	}
	out, text, closeJSON, err := outputs(c, stdout, stderr)
	if err != nil {
		return fail(stderr, err)
	}
	page, err := openPage(c.html)
	if err != nil {
		_ = closeJSON() // nothing was written
		return fail(stderr, err)
	}
	report, err := execute(ctx, c, text, stderr)
	if err != nil {
		fail(stderr, err)
	}
	if report == nil {
		_, _ = closeJSON(), page.Close() // nothing was written
		return exitCannot
	}
	code := exitStatus(report.Verdict, err)
	if !c.quiet {
		writeTable(text, report.Windows, c.instances)
		fmt.Fprintln(text)
		writeSummary(text, &report.Summary)
	}
	writeVerdict(text, report.Verdict, report.Windows, &report.Summary)
	if out != nil {
		if err := errors.Join(report.WriteJSON(out), closeJSON()); err != nil {
			return fail(stderr, err)
		}
	}
	if page != nil {
		if err := errors.Join(writePage(page, c, report), page.Close()); err != nil {
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

// execute runs the fleet. The report is nil where nothing ran.
func execute(ctx context.Context, c *config, text, stderr io.Writer) (*load.Report, error) {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	e, err := openEtcd(running, c, fail)
	if err != nil {
		return nil, err
	}
	provider := "loadgen/" + strings.ToLower(rand.Text()[:10])
	if !c.quiet {
		fmt.Fprintf(text, "%d instances%s share %s%s; demand %v, %s, %s; settle time %v; %s\n",
			c.instances, c.processesText(), c.limit, c.shapeText(), c.demand, c.arrival, c.skew, c.settle, e.where())
	}
	r := &run{c: c, etcd: e, provider: provider, crew: newCrew(c, e, provider, fail), show: newProgress(stderr, c.quiet)}
	if c.html != "" {
		r.shares = new(load.Shares)
	}
	err = r.drive(running)
	if cause := context.Cause(running); ctx.Err() == nil && cause != nil {
		err = errors.Join(cause, err) // not the user, but something that went wrong
	}
	if closing := e.close(); err == nil && closing != nil && ctx.Err() == nil {
		err = fmt.Errorf("closing etcd: %w", closing)
	}
	return r.report(), err
}

// outputs finds where the JSON goes, if anywhere, and where the text goes:
// standard output, unless the JSON has it.
func outputs(c *config, stdout, stderr io.Writer) (out, text io.Writer, closeJSON func() error, err error) {
	nothing := func() error { return nil }
	switch c.json {
	case "":
		return nil, stdout, nothing, nil
	case "-":
		return stdout, stderr, nothing, nil
	}
	file, err := os.Create(c.json) // now, so that a bad name costs no run
	if err != nil {
		return nil, nil, nothing, usagef("--json: %v; give a file that can be written, or -", err)
	}
	return file, stdout, file.Close, nil
}

// fail writes an error and returns the exit status for it.
func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "loadgen: %v\n", err)
	var usage *usageError
	var connection *etcdflags.UsageError
	if errors.As(err, &usage) || errors.As(err, &connection) {
		return exitUsage
	}
	return exitCannot
}
