package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/etcdflags"
)

// app is one run of the tool: what it was called with, and what all commands
// share. Commands are methods that return a *cobra.Command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	etcd           *etcdflags.Flags
	format         format.Output // of data and of errors
	debug          bool
}

// run is the whole tool, and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) string) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env, format: format.Table}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	a.initCompletion(root)
	if err := root.ExecuteContext(context.Background()); err != nil {
		// A bad flag stops the parser, maybe before it saw -o.
		a.format = formatOf(args, a.format)
		return a.fail(err)
	}
	return exitDone
}

// withAdmin connects to etcd and runs f.
func (a *app) withAdmin(ctx context.Context, f func(context.Context, *coordinator.Admin) error) error {
	return a.withClient(ctx, func(ctx context.Context, client *clientv3.Client) error {
		admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{
			Prefix:  a.etcd.Prefix,
			Author:  author(a.env),
			Timeout: a.etcd.CommandTimeout,
		})
		if err != nil {
			return err
		}
		return f(ctx, admin)
	})
}

// withClient connects to etcd and runs f. An error that says that etcd cannot
// be reached is completed by what the endpoints themselves say.
func (a *app) withClient(ctx context.Context, f func(context.Context, *clientv3.Client) error) error {
	if a.debug {
		log := slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		a.etcd.Log = coordinator.NewClientLogger(log)
	}
	client, err := a.etcd.Client(ctx)
	if err != nil {
		return a.explain(ctx, connectError(err))
	}
	defer client.Close()
	return a.explain(ctx, f(ctx, client))
}

// root builds the command tree. A new command is added here.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "quota-admin",
		Short: "Set and show the rate limits of providers, and who obeys them",
		Long: `quota-admin sets and shows the policies of providers in etcd, their history,
and the instances that obey them.

A provider is named by a path: payments/charge. Limits are permits per window,
several with commas: 300000/s or 500/2s,10000/1m.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign --wait
  quota-admin top payments/charge
  quota-admin list --endpoints https://etcd-1:2379,https://etcd-2:2379 \
      --cacert ca.pem --cert ann.pem --key ann-key.pem`,
		Args:          a.noCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       buildinfo.Version(),
		SilenceErrors: true, // run prints them, in the format asked for
		SilenceUsage:  true,
		// As far as two typing errors.
		SuggestionsMinimumDistance: 2,
	}
	flags := root.PersistentFlags()
	a.etcd = etcdflags.Register(flags)
	a.etcd.Env, a.etcd.Stdin, a.etcd.Stderr = a.env, a.stdin, a.stderr
	flags.VarP(&a.format, "output", "o", "`format` of data and errors: table, json or yaml")
	flags.BoolVar(&a.debug, "debug", false, "show on stderr what the etcd client logs")
	flags.SortFlags, root.Flags().SortFlags = false, false // keep those together that belong together
	root.SetVersionTemplate("quota-admin {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if text := unknown.GetSpecifiedShortnames(); text != "" && text[0] >= '0' && text[0] <= '9' {
				return usageError(cmd, "limits -%s: a limit cannot be negative", text)
			}
		}
		return usageError(cmd, "%v", err)
	})
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(
		a.setCommand(), a.cancelCommand(), a.pauseCommand(), a.resumeCommand(), a.shadowCommand(), a.enforceCommand(),
		a.getCommand(), a.listCommand(), a.deleteCommand(),
		a.historyCommand(), a.diffCommand(), a.rollbackCommand(),
		a.applyCommand(), a.exportCommand(),
		a.instancesCommand(), a.doctorCommand(), a.topCommand(), a.dashboardCommand(), a.rolesCommand(), a.devCommand(), a.versionCommand(),
	)
	return root
}

// noCommand refuses a first word that is no command.
func (a *app) noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		slices.Sort(near)
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError(cmd, "there is no command %q%s", args[0], hint)
}
