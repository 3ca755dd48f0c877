// Command quota-admin is the operator's tool of Quotient: it sets and shows the
// policies of providers in etcd, their history, and the instances that apply them.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// app is one run of the tool: its environment, and what all commands share. Commands are methods that return a *cobra.Command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	etcd           *etcdflags.Flags
	format         format.Output // of data and of errors
	debug          bool
	wrong          []error // flags whose values cannot be used
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is the whole tool, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env, format: format.Table}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultCompletionCmd() // writes to the output that is set by now
	a.finish(root)
	if err := root.ExecuteContext(context.Background()); err != nil {
		// A bad flag stops the parser, maybe before it saw -o.
		a.format = formatOf(args, a.format)
		return a.fail(a.explain(context.Background(), err))
	}
	return exitDone
}

// formatOf finds the format in arguments that the parser gave up on.
func formatOf(args []string, otherwise format.Output) format.Output {
	only := pflag.NewFlagSet("", pflag.ContinueOnError)
	only.ParseErrorsAllowlist.UnknownFlags = true
	only.Usage = func() {}
	only.VarP(&otherwise, "output", "o", "")
	_ = only.Parse(args) // run tells of errors
	return otherwise
}

// emit writes data to stdout: as JSON or YAML, or by table.
func (a *app) emit(data any, table func(io.Writer)) error {
	if a.format != format.Table {
		return a.format.Write(a.stdout, data)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 3, ' ', 0)
	table(w)
	return w.Flush()
}

// note writes a message to stderr. Programs that read JSON or YAML are spared.
func (a *app) note(text string, args ...any) {
	if a.format == format.Table {
		fmt.Fprintln(a.stderr, format.Clean(fmt.Sprintf(text, args...)))
	}
}

func (a *app) needsAdmin(cmd *cobra.Command, f func(context.Context, *coordinator.Admin, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.connected(cmd.Context(), func(_ *clientv3.Client, admin *coordinator.Admin) error { return f(cmd.Context(), admin, args) })
	}
	return cmd
}

func (a *app) connected(ctx context.Context, f func(*clientv3.Client, *coordinator.Admin) error) error {
	if a.debug {
		a.etcd.Log = coordinator.NewClientLogger(a.log())
	}
	client, err := a.etcd.Client(ctx)
	if err != nil {
		return connectError(err)
	}
	defer client.Close()
	admin, err := a.admin(client, a.etcd.CommandTimeout)
	if err != nil {
		return err
	}
	return f(client, admin)
}

func (a *app) admin(client *clientv3.Client, timeout time.Duration) (*coordinator.Admin, error) {
	return coordinator.NewAdmin(client, coordinator.AdminOptions{Prefix: a.etcd.Prefix, Author: author(a.env), Timeout: timeout})
}

// log writes to stderr: with --debug everything.
func (a *app) log() *slog.Logger {
	level := slog.LevelInfo
	if a.debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// envAuthor names the author of a change that a machine makes for somebody.
const envAuthor = "QUOTIENT_AUTHOR"

// author is recorded in the history.
func author(env func(string) string) string { return cmp.Or(env(envAuthor), buildinfo.User()) }
