// Loadgen drives a fleet of instances through Quotient and verifies that
// together they never issue more permits than the limit.
//
// With no flags it starts an embedded etcd and 20 instances, each with a session and a
// limiter of its own. It offers one and a half times 300,000 calls per second for ten
// seconds. Then it prints the permits of each window and a verdict. It counts the
// permits itself, by the window that each one names, and never asks the limiters for
// their counts.
//
// By its own clock, the system's, it checks what permits tell. Each must come in its
// window, give or take the policy's clock error. Then no span of time has more permits
// than the windows that it touches. The clock is read before a permit is asked for and
// after it came, so a busy machine makes no permit wrong. A permit that was asked for
// in its window and came later cannot be placed. If more than a tenth are like that (30% under other shapes),
// or if the system's clock was set, the verdict is UNKNOWN. A run in which all clocks err alike
// says nothing of true time.
//
// A limiter that issues nothing exceeds no limit. So the verdict has a second half: what
// part came of the permits that were due, by the calls that loadgen made, the limits and
// the instances that it had running. If nothing came, the verdict is UNUSED. With
// --least-use too little makes it UNDERUSED.
//
// With --keys the calls are for keys. Each has a limit of its own, and loadgen counts and judges
// its windows too.
//
// The instances run in child processes of this program, which never outlive it. A
// killed one's counts are in the sum, because it counts in a mapped file, and before
// it takes a permit.
//
// Exit status: 0 HELD, 1 NOT HELD, 2 bad usage, 3 it could not run, could not judge
// (UNKNOWN), or a child died unexpectedly, 4 UNUSED, 5 UNDERUSED.
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
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/trace"
)

// Exit statuses.
const (
	exitHeld      = 0
	exitNotHeld   = 1
	exitUsage     = 2
	exitCannot    = 3
	exitUnused    = 4
	exitUnderused = 5
)

func main() {
	embedded.RunIfMember()
	worker.RunIfChild()
	// The first interrupt ends the run early; then signals do again what they
	// always do, so the second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(loadgen(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
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
	if c.Judge != "" {
		return judge(c.Judge, stdout)
	}
	if c.Trace != "" {
		if err := trace.Prepare(c.Trace); err != nil {
			return fail(stderr, config.Usagef("--trace: %v", err))
		}
	}
	if w := c.Window(); c.Duration < w {
		return fail(stderr, config.Usagef("no whole window of %v fits into --duration %v: use at least --duration %v", w, c.Duration, w))
	}
	report, err := create("--json", c.JSON)
	if err != nil {
		return fail(stderr, err)
	}
	defer report.Close() // a second time does nothing, and so does none
	page, err := create("--html", c.HTML)
	if err != nil {
		return fail(stderr, err)
	}
	defer page.Close()
	text := stdout
	if c.JSON == "-" {
		text = stderr
	}
	result, err := fleet.Execute(ctx, c, text, stderr)
	if err != nil {
		fail(stderr, err)
	}
	if errors.Is(err, etcdcall.ErrUnreachable) && !c.Embedded {
		for _, line := range append(c.Etcd.Diagnose(ctx, err), "check --endpoints or QUOTIENT_ENDPOINTS, and etcd itself; without them loadgen starts an etcd") {
			fmt.Fprintln(stderr, "  "+line)
		}
	}
	if result == nil {
		return exitCannot
	}
	if !c.Quiet {
		show.Table(text, result, c.Instances)
		fmt.Fprintln(text)
		show.Summary(text, &result.Summary)
	}
	show.Verdict(text, result)
	traced := exitHeld
	if c.Trace != "" {
		traced = judge(c.Trace, text)
	}
	var failed error
	if c.JSON == "-" {
		failed = result.WriteJSON(stdout)
	} else if report != nil {
		failed = errors.Join(result.WriteJSON(report), report.Close())
	}
	if page != nil {
		title := fmt.Sprintf("%d instances share %s%s", c.Instances, c.Limit, c.ShapeText())
		failed = errors.Join(failed, show.Page(page, title, result), page.Close())
	}
	if failed != nil {
		return fail(stderr, failed)
	}
	return exitStatus(result.Verdict, traced, err)
}

// judge decides on the traces in a directory.
func judge(dir string, text io.Writer) int {
	r := trace.JudgeDir(dir)
	fmt.Fprintln(text, r)
	switch {
	case r.Over > 0:
		return exitNotHeld
	case r.OK():
		return exitHeld
	}
	return exitCannot
}

// exitStatus returns the worst of the statuses of two verdicts and an error: a broken
// limit is above everything else.
func exitStatus(v load.Verdict, traced int, err error) int {
	switch {
	case v == load.NotHeld || traced == exitNotHeld:
		return exitNotHeld
	case v == load.Unused:
		return exitUnused
	case v == load.Unknown || err != nil || traced == exitCannot:
		return exitCannot
	case v == load.Underused:
		return exitUnderused
	}
	return exitHeld
}

// create makes the file of a flag, before the run: a bad name costs no run. It is nil
// without a name, and for standard output.
func create(flag, name string) (*os.File, error) {
	if name == "" || name == "-" {
		return nil, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, config.Usagef("%s: %v; give a file that can be written", flag, err)
	}
	return file, nil
}

func fail(stderr io.Writer, err error) int {
	fmt.Fprintf(stderr, "loadgen: %s\n", etcdcall.Plain(err.Error()))
	if _, ok := errors.AsType[*etcdflags.UsageError](err); ok {
		return exitUsage
	}
	return exitCannot
}
