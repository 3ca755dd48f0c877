// Command quota-admin is the operator's tool of Quotient: it sets and shows the
// policies of providers in etcd, their history, and the instances that apply them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/coordinator/etcdlog"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/quota"
)

// app is one run of the tool: its environment, and what all commands share. Commands are
// methods that return a *cobra.Command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	etcd           *etcdflags.Flags
	format         format.Output // of data and of errors
	wide           bool          // tables have all columns
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
	a.finishHelp(root)
	if err := root.ExecuteContext(context.Background()); err != nil {
		// A bad flag stops the parser, maybe before it saw -o.
		only := pflag.NewFlagSet("", pflag.ContinueOnError)
		only.ParseErrorsAllowlist.UnknownFlags = true
		only.Usage = func() {}
		only.FuncP("output", "o", "", a.setOutput)
		_ = only.Parse(args)
		return a.fail(a.explain(context.Background(), err))
	}
	return exitDone
}

// setOutput sets the format. Wide is a table, as far as a command has no more columns.
func (a *app) setOutput(text string) error {
	a.wide = text == "wide"
	if a.wide {
		text = string(format.Table)
	}
	return a.format.Set(text)
}

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

// connection is what a command does things by.
type connection struct {
	*admin.Client
	client *clientv3.Client
}

// onEtcd makes f all that cmd does after its checks.
func (a *app) onEtcd(cmd *cobra.Command, f func(context.Context, connection, []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.connected(cmd.Context(), func(c connection) error {
			if err := a.etcd.Reach(cmd.Context(), c.client); err != nil {
				return err
			}
			return withNear(cmd.Context(), c, args, f(cmd.Context(), c, args))
		})
	}
	return cmd
}

// withNear adds to the error of an absent provider the one that may have been meant. A user
// that may not list providers is told none.
func withNear(ctx context.Context, etcd connection, args []string, err error) error {
	if _, own := errors.AsType[*fault](err); own || len(args) == 0 || !errors.Is(err, admin.ErrNotFound) {
		return err
	}
	all, _ := etcd.List(ctx)
	if near := nearest(args[0], all); near != "" {
		return &fault{err, nil, []string{"did you mean " + near + "? quota-admin list shows the providers"}}
	}
	return err
}

func (a *app) connected(ctx context.Context, f func(connection) error) error {
	if a.debug {
		a.etcd.Log = etcdlog.New(a.log())
	}
	client, err := a.etcd.Client(ctx)
	if err != nil {
		return connectError(err)
	}
	defer client.Close()
	operator, err := a.admin(client, a.etcd.CommandTimeout)
	if err != nil {
		return err
	}
	return f(connection{operator, client})
}

func (a *app) admin(client *clientv3.Client, timeout time.Duration) (*admin.Client, error) {
	return admin.New(client, admin.Options{Prefix: a.etcd.Prefix, Author: a.author(), Timeout: timeout})
}

func (a *app) log() *slog.Logger {
	level := slog.LevelInfo
	if a.debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// untilInterrupted returns a context that an interrupt ends too.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// envAuthor names the author of a change that a machine makes for somebody.
const envAuthor = "QUOTIENT_AUTHOR"

func author(env func(string) string) string { return cmp.Or(env(envAuthor), buildinfo.User()) }

// author is the user that etcd knows this run as: by a password or a certificate. Beside it
// stands what the run says of itself, which nobody checks.
func (a *app) author() string {
	said := author(a.env)
	if user := cmp.Or(a.etcd.User, a.etcd.CertificateUser()); user != "" {
		return user + " (" + said + ")"
	}
	return said
}

// root builds the command tree. A new command is added here.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "quota-admin",
		Short: "Set and show the rate limits of providers, and the instances that apply them",
		Long: `quota-admin sets and shows the policies of providers in etcd, their history,
and the instances that apply them.

A provider is named by a path: payments/charge. Limits are permits per window,
several with commas: 300000/s or 500/2s,10000/1m.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign --wait
  quota-admin top payments/charge
  quota-admin list --endpoints https://etcd-1:2379,https://etcd-2:2379 \
      --cacert ca.pem --cert ann.pem --key ann-key.pem`,
		Version:       buildinfo.Version(),
		SilenceErrors: true, // run prints them, in the format asked for
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	a.etcd = etcdflags.Register(flags)
	a.etcd.Env, a.etcd.Stdin, a.etcd.Stderr = a.env, a.stdin, a.stderr
	flags.FuncP("output", "o", "`table|wide|json|yaml`: format of data and errors; default: table; wide: a table with all columns, of instances; json, yaml: durations in seconds", a.setOutput)
	flags.BoolVar(&a.debug, "debug", false, "show on stderr what the etcd client logs")
	flags.SortFlags = false
	root.SetVersionTemplate("quota-admin {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if text := unknown.GetSpecifiedShortnames(); text != "" && text[0] >= '0' && text[0] <= '9' {
				return usageError(cmd, "limits -%s: a limit cannot be negative", text)
			}
		}
		return usageError(cmd, "%s", commandline.Wrong(cmd.Flags(), err))
	})
	root.SetUsageTemplate(usageTemplate)
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	group("change", "Change limits:", append(a.modeCommands(), a.setCommand(), a.keysCommand(), a.cancelCommand(), a.deleteCommand(), a.rollbackCommand(), a.applyCommand())...)
	group("policy", "Show limits and changes:", a.getCommand(), a.listCommand(), a.historyCommand(), a.exportCommand())
	group("fleet", "Show and wait for instances:", a.instancesCommand(), a.explainCommand(), a.topCommand(), a.budgetCommand(), a.waitCommand(), a.doctorCommand(), a.dashboardCommand())
	group("other", "Set up:", a.rolesCommand(), a.devCommand(), a.versionCommand())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	return root
}

// finish sets, for cmd and the commands below it, what follows from their lines of
// usage: the check of arguments, and the completion of providers.
func (a *app) finish(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false // related flags stand together
	a.completeFlags(cmd)
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2 // typing errors
		cmd.Args = a.noCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else {
		cmd.Args, cmd.ValidArgsFunction = a.checkArgs, a.completeArgument
	}
	for _, c := range cmd.Commands() {
		a.finish(c)
	}
}

// finishHelp has "help" refuse a command that there is not. It completes commands by itself.
func (a *app) finishHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			return a.noCommand(cmd, rest)
		}
	}
}

// noCommand refuses what stands where one of cmd's commands should.
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

// argument returns the name of the n-th argument by the line of usage, as in
// "history [PROVIDER [REVISION [REVISION]]]"; "" if there is none.
func argument(cmd *cobra.Command, n int) (name string, needed bool) {
	words := strings.Fields(cmd.Use)[1:]
	if last := len(words) - 1; n > last && last >= 0 && strings.HasSuffix(words[last], "...]") {
		n = last
	}
	if n >= len(words) || strings.HasPrefix(words[0], "-") {
		return "", false
	}
	return strings.Trim(words[n], "[.]"), words[n][0] != '['
}

// checkArgs compares the arguments with the line of usage, and reports flags with
// wrong values.
func (a *app) checkArgs(cmd *cobra.Command, args []string) error {
	for n, text := range args {
		switch name, _ := argument(cmd, n); {
		case name == "":
			hint := ""
			if _, err := quota.ParseLimits(text); err == nil || text == "sliding" {
				hint = ": quote limits that have blanks, as in '14/s,5000/h sliding'"
			}
			if _, before := quota.ParseLimits(strings.TrimRight(args[max(n, 1)-1], ",")); hint != "" && before != nil { // something else has been split
				hint = ": quote a name that has blanks, as in 'demo api'"
			}
			return usageError(cmd, "%q is one argument too many%s", text, hint)
		case name == "PROVIDER" && quota.ValidateProvider(text) != nil:
			return usageError(cmd, "%v", quota.ValidateProvider(text))
		case name == "REVISION" && revisionOf(text) < 1:
			return usageError(cmd, "%q is no revision; history shows them", text)
		}
	}
	var missing []string
	for n := len(args); ; n++ {
		name, needed := argument(cmd, n)
		if !needed {
			break
		}
		missing = append(missing, name)
	}
	if len(missing) == 1 && missing[0] == "LIMITS" {
		if cmd.Flags().Changed("keys") {
			return usageError(cmd, "LIMITS, of all keys together, is missing before --keys: quota-admin get %s shows those that are set", args[0])
		}
		return usageError(cmd, "LIMITS is missing, as in: %s %s 100/s", cmd.CommandPath(), strings.Join(args, " "))
	} else if len(missing) > 0 {
		example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
		are := "is"
		if len(missing) > 1 {
			are = "are"
		}
		return usageError(cmd, "%s %s missing, as in: %s", strings.Join(missing, " and "), are, example)
	}
	return errors.Join(a.wrong...)
}

// revisionOf reads a revision; 0 is none.
func revisionOf(text string) int64 {
	n, _ := strconv.ParseUint(text, 10, 63)
	return int64(n)
}

// addFlag adds a flag to cmd. All values that cannot be parsed are reported together.
func addFlag[T any](a *app, cmd *cobra.Command, value *T, name string, parse func(text string) (T, error), usage string) {
	cmd.Flags().Func(name, usage, func(text string) error {
		v, err := parse(text)
		if *value = v; err != nil {
			a.wrong = append(a.wrong, usageError(cmd, "--%s %s: %v", name, text, err))
		}
		return nil
	})
}

// underTitles has the help show cmd's flags in groups. Each begins with the flag that its title
// stands for; the first flag has one.
func underTitles(cmd *cobra.Command, titles map[string]string) {
	var groups commandline.Groups
	var group *pflag.FlagSet
	cmd.Flags().SortFlags = false
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if title, begins := titles[f.Name]; begins {
			group = groups.Add(title, func(*pflag.FlagSet) {})
		}
		group.AddFlag(f)
	})
	cmd.SetUsageTemplate(strings.Replace(usageTemplate, ownFlags, "\n"+strings.TrimSpace(groups.Usages()), 1))
}

// ownFlags is the part of usageTemplate with the flags.
const ownFlags = `
Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}`

// usageTemplate shows a command's own flags only. The connection flags are many
// and the same for all, so they stand in the root's help.
const usageTemplate = `Usage:
  {{if .Runnable}}{{if .HasParent}}{{.UseLine}}{{else}}quota-admin COMMAND{{end}}{{else}}{{.CommandPath}} COMMAND{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}

{{if eq (len .Groups) 0}}Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{else}}
{{- range $n, $group := .Groups}}{{if $n}}

{{end}}{{.Title}}{{range $.Commands}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}
` + ownFlags + `{{end}}
{{- if .HasParent}}

Connection flags, -o table|wide|json|yaml and exit codes: quota-admin --help
{{- else}}

Changes are recorded as made by the etcd user, or by the name in the client certificate.
In brackets follows user@host, or ` + envAuthor + ` where it is set; without a user it
stands alone.

Exit codes:
  0  done
  1  failed
  2  bad usage
  3  not found
  4  revision conflict: the policy was changed meanwhile
  5  etcd cannot be reached
  6  etcd denied permission
  7  refused by a guard rail: --max-step, a bad policy, too short an announcement
  8  written, but not applied by every instance in time, or not known to be (--wait)
{{end}}
`
