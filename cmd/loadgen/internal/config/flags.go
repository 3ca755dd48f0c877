package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/cli/commandline"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	maxProcesses = 256 // of workers, victims of churn included
	maxMembers   = 7
	maxDuration  = 24 * time.Hour
	leastMove    = 100 * time.Millisecond
)

// Usagef returns a *etcdflags.UsageError with a text as by fmt.Sprintf.
func Usagef(format string, args ...any) error {
	return &etcdflags.UsageError{Problem: fmt.Sprintf(format, args...)}
}

// raw is what the flags say, unchecked.
type raw struct {
	limit, guard, transport  string
	keyLimit                 string
	changes, faults, crashes []string
	config                   Config
}

// ParseFlags reads the command line. It returns pflag.ErrHelp where help or the
// version was asked for and given; every other error is a *etcdflags.UsageError.
func ParseFlags(args []string, env func(string) string, help io.Writer) (*Config, error) {
	var r raw
	set := pflag.NewFlagSet("loadgen", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SortFlags = false
	set.Usage = func() {}
	r.register(set)
	connection := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	connection.SortFlags = false
	etcd := etcdflags.Register(connection)
	etcd.Env = env
	set.AddFlagSet(connection)
	version := set.Bool("version", false, "print the version and end")
	if asked, err := commandline.Complete("loadgen", set, args, help); asked {
		if err != nil {
			return nil, Usagef("%v; see loadgen --help", err)
		}
		return nil, pflag.ErrHelp
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			printHelp(help, set)
			return nil, err
		}
		return nil, Usagef("%s; see loadgen --help", commandline.Wrong(set, err))
	}
	if *version {
		fmt.Fprintln(help, "loadgen "+buildinfo.Version())
		return nil, pflag.ErrHelp
	}
	if r.config.Keys > 0 && !set.Changed("max-wait") {
		r.config.MaxWait = 0
	}
	if r.config.Keys == 0 && (set.Changed("key-limit") || set.Changed("key-owners")) {
		return nil, Usagef("--key-limit and --key-owners are of keys, and calls have none: give --keys 100 too")
	}
	if set.NArg() > 0 {
		return nil, Usagef("argument %q is not a flag; see loadgen --help", set.Arg(0))
	}
	c, err := r.check()
	if err != nil {
		return nil, err
	}
	c.Args, c.Asked = args, asked(set, connection)
	c.Etcd, c.Embedded = etcd, !connection.Changed("endpoints") && env("QUOTIENT_ENDPOINTS") == ""
	if c.Embedded {
		delete(c.Asked, "endpoints")
		etcd.Env = func(string) string { return "" } // which is of another one
		return c, noneOf(connection)
	}
	if set.Changed("etcd-members") || len(c.Faults) > 0 {
		return nil, Usagef("--etcd-members and --fault are for the embedded etcd: leave them out, or --endpoints")
	}
	if err := etcd.Resolve(); err != nil {
		return nil, err
	}
	return c, nil
}

// asked returns the flags by their names, with numbers as such, and durations in seconds. Of how etcd
// is reached it tells the endpoints alone.
func asked(set, connection *pflag.FlagSet) map[string]any {
	values := map[string]any{}
	set.VisitAll(func(f *pflag.Flag) {
		if connection.Lookup(f.Name) != nil && f.Name != "endpoints" {
			return
		}
		var v any = f.Value.String()
		name := strings.ReplaceAll(f.Name, "-", "_")
		if f.Value.Type() == "duration" {
			d, _ := time.ParseDuration(f.Value.String())
			name, v = name+"_seconds", d.Seconds()
		} else if list, ok := f.Value.(pflag.SliceValue); ok {
			v = list.GetSlice()
		} else if n, err := strconv.ParseFloat(f.Value.String(), 64); err == nil && f.Value.Type() != "string" {
			v = n
		} else if f.Value.Type() == "bool" {
			v = f.Value.String() == "true"
		}
		values[name] = v
	})
	return values
}

func (r *raw) register(set *pflag.FlagSet) {
	c := &r.config
	set.StringVar(&r.limit, "limit", "300000/s", "the limit, as `PERMITS/WINDOW`; several with commas, such as 500/2s,2000/10s")
	set.IntVar(&c.Instances, "instances", 20, "how many instances share it")
	set.IntVar(&c.Processes, "processes", 1, "number of their operating-system processes, beside this one")
	set.DurationVar(&c.Duration, "duration", 10*time.Second, "how long to measure, once the whole fleet is active")
	set.Float64Var(&c.Demand, "demand", 1.5, "offered calls over the limit of the shortest window; from 1 on each instance makes at least one call more than its share in every window, unless --hot or --zipf is given")
	set.StringVar((*string)(&c.Arrival), "arrival", "steady", "distribution of calls in time: `steady|poisson|burst|sine`")
	set.IntVar(&c.Spread.Hot, "hot", 0, "how many `INSTANCES` make all calls; 0: all of them do")
	set.Float64Var(&c.Spread.Zipf, "zipf", 0, "the exponent `S` of a Zipf distribution of calls over instances, such as 1; 0: even")
	set.IntVar(&c.Keys, "keys", 0, "calls are for `N` keys, each with a limit of its own, and do not wait; --zipf then spreads them over keys, not over instances; 0: calls have no keys")
	set.StringVar(&r.keyLimit, "key-limit", "", "the limit of each of --keys, in windows of the shortest limit; default: the Nth part of that")
	set.Int64Var(&c.policy.Keys.Owners, "key-owners", 0, "how many instances share the limit of a key; 0: all do")
	set.DurationVar(&c.Spread.Move, "move", 0, "how often other instances become hot, or the ranks of --zipf change; the first time after 0.63 of it; 0: never")
	set.Uint64Var(&c.Seed, "seed", 1, "seed of poisson, burst and the ranks of --zipf; the same seed gives the same calls in each window")
	set.DurationVar(&c.MaxWait, "max-wait", 100*time.Millisecond, "how long a refused call may wait for a permit of the next window; 0: not at all")
	set.StringArrayVar(&r.changes, "change", nil, "`AT=LIMIT`, such as 5s=150000/s: change the limit AT after measuring began; repeatable")
	set.Float64Var(&c.Churn, "churn", 0, "how many `instances` leave each second, and as many join")
	set.Float64Var(&c.churnKill, "churn-kill", 0.5, "the part of them that is killed, each in its own process; the others announce that they leave; 0: all announce it")
	set.BoolVar(&c.Rolling, "rolling-restart", false, "restart every instance once, one after the other, evenly over the measured time; each announces that it leaves, and its successor joins at that moment")
	set.StringArrayVar(&r.crashes, "crash", nil, "`AT`, such as 5s: kill one of the --processes with all its instances AT after measuring began, and start it again; repeatable")
	set.StringVar(&c.StateDir, "state-dir", "", "a directory on a local disk for the instances' state, so those killed by --churn or --crash continue (coordinator.Options.StateDir); default: they join as new; Linux only")
	set.StringVar(&r.transport, "transport", "none", "use of permits: `none|http`; http: each makes a request to a provider in this process, which counts by its own clock; the count is judged if the guard covers the clocks' error (auto does)")
	set.IntVar(&c.Members, "etcd-members", 1, "how many members the embedded etcd has; several are a process each")
	set.StringArrayVar(&r.faults, "fault", nil, "`AT=FAULT`, such as 5s=kill-leader: a fault of the embedded etcd AT after measuring began; repeatable; "+strings.Join(faultNames, ", "))
	set.DurationVar(&c.MeasureAfter, "measure-after", 0, "how long the whole fleet runs before measuring begins")
	set.DurationVar(&c.WindowOffset, "window-offset", 0, "time from the start of joining to the end of the window of a limit of more than a minute (of several, the longest): all clocks of the run, this command's too, are ahead of the system's; 0: they are not")
	set.DurationVar(&c.Settle, "settle", quota.DefaultSettle, "the policy's settle time, before a share grows after a join, a crash or another division")
	set.StringVar((*string)(&c.policy.Outage), "outage", string(quota.OutageHold), "the policy's rule for an outage of etcd: `hold|stop`")
	set.StringVar((*string)(&c.policy.Share), "share", string(quota.ShareEqual), "how the policy divides the limit: `equal|weighted`; weighted: every tenth instance weighs 10, and makes ten times as many calls")
	set.StringVar(&c.policy.Lend, "lend", "on", "the policy's rule of lending: `on|newcomers|off`")
	set.StringVar((*string)(&c.policy.Pacing), "pacing", string(quota.PacingOff), "how the policy releases a window's permits: `off|even`; a refused call then waits within its window too")
	set.StringVar((*string)(&c.policy.Shape), "shape", string(quota.ShapeFixed), "how the policy counts: `fixed|sliding|bucket`; under the others the verdict is on all spans of time, wherever they begin")
	set.Int64Var(&c.policy.Burst, "burst", 0, "how many `PERMITS` --shape bucket lets the fleet issue at once; 0: all of a limit's")
	set.DurationVar(&c.policy.WarmUp, "warm-up", 0, "the policy's warm-up: over this time the share of an instance that has just started grows to the whole; 0: off")
	set.StringVar(&r.guard, "guard", "0s", "the policy's guard: `G` at either edge of a window in which nothing is issued, such as 20ms; auto or auto+20ms follows the clock's error; under other shapes than fixed, the time that a call may take to the provider")
	set.StringSliceVar(&c.NTP, "ntp", nil, "NTP `servers` by which every instance measures its clock, host or host:port with commas; every instance asks every server")
	set.Float64Var(&c.LeastUse, "least-use", 50, "the least use, in `PERCENT` of the permits that were due; with less the verdict is UNDERUSED; 0: only a fleet that issues nothing fails (UNUSED)")
	set.StringVar(&c.JSON, "json", "", "write the report as JSON to `FILE`, or to standard output with -")
	set.StringVar(&c.Trace, "trace", "", "a `DIR` without traces: every instance writes there all that it learns and issues, and each window is judged by the views in force (TRACE HELD)")
	set.StringVar(&c.Judge, "judge", "", "judge the traces in `DIR` again, and run nothing")
	set.StringVar(&c.HTML, "html", "", "write the report as a page with charts to `FILE`; it needs no network")
	set.BoolVar(&c.Quiet, "quiet", false, "no progress and no table, only the verdict")
}

func printHelp(w io.Writer, set *pflag.FlagSet) {
	fmt.Fprint(w, `Loadgen drives a fleet of instances through Quotient and verifies that together
they never issue more permits than the limit. It counts the permits itself, by the
window that each one names, and checks with its own clock that each came in it.

With no flags: an embedded etcd, 20 instances, 300000/s, 10 s, demand 1.5, least use 50%.

Usage: loadgen [flags]

`, set.FlagUsagesWrapped(100), `
loadgen completion bash|zsh|fish|powershell prints a script that completes flags.

With --endpoints (or QUOTIENT_ENDPOINTS) it uses a running etcd, and cleans up
afterwards.

The verdict has two halves. HELD: no limit was exceeded. USED: how much of what was due came,
in the whole windows of the shortest limit. Due are the calls, up to the limit in force and to
each instance's part of it; not due is the part of instances that loadgen has killed, or that
are not ready yet. A fleet that issues less than half of what is due does not work, so that is
the least use by default. Less is right where calls come all at once (--arrival burst) and
pacing, a guard or another shape than fixed turns them away: then give a lower --least-use.

With --keys each call is for a key that has a limit of its own. HELD then also says that no key
was over its limit in any window, and calls for a key are due up to its limit. Calls for keys do
not wait, so those that a loan would serve a little later are refused.

Exit status:
  0  HELD: no limit was exceeded, and at least --least-use of what was due came
  1  NOT HELD: a limit was exceeded
  2  bad usage
  3  UNKNOWN, or it could not run, or a process died unexpectedly; UNKNOWN also if more than a
     tenth of the permits (of requests and of shapes 30%) came too late to tell when they were
     issued, or if nothing was due
  4  UNUSED: nothing came of what was due
  5  UNDERUSED: less than --least-use came
The worst one counts, in the order 1, 4, 3, 5. The quantiles in acquire_ns are of one in 64
permits that were granted at once, and include two readings of the clock.
`)
}

func (r *raw) check() (*Config, error) {
	c := &r.config
	var err error
	if c.Limits, err = parseLimits("--limit", r.limit); err != nil {
		return nil, err
	}
	c.Limit = strings.TrimSpace(r.limit)
	c.Spread.Seed = c.Seed
	if err := cmp.Or(
		oneOf("--arrival", c.Arrival, load.Steady, load.Poisson, load.Burst, load.Sine),
		oneOf("--transport", r.transport, "none", "http"),
		within("--instances", c.Instances, 1, 10_000),
		within("--processes", c.Processes, 1, maxProcesses),
		within("--duration", c.Duration, time.Millisecond, maxDuration),
		within("--demand", c.Demand, 1e-6, 1000),
		within("--hot", c.Spread.Hot, 0, c.Instances),
		within("--zipf", c.Spread.Zipf, 0, load.MaxZipf),
		within("--move", c.Spread.Move, 0, maxDuration),
		within("--max-wait", c.MaxWait, 0, time.Minute),
		within("--measure-after", c.MeasureAfter, 0, maxDuration),
		within("--window-offset", c.WindowOffset, 0, maxDuration),
		within("--settle", c.Settle, 100*time.Millisecond, quota.MaxSettle),
		within("--churn", c.Churn, 0, 100),
		within("--churn-kill", c.churnKill, 0, 1),
		within("--least-use", c.LeastUse, 0, 100),
	); err != nil {
		return nil, err
	}
	c.Http = r.transport == "http"
	if c.policy.Guard, c.policy.GuardAuto, err = quota.ParseGuard(r.guard); err != nil {
		return nil, Usagef("--guard: %v", err)
	}
	if err := ntp.CheckServers(c.NTP); err != nil {
		return nil, Usagef("--ntp: %v", err)
	}
	if err := c.parseMoments(r.changes, r.faults, r.crashes); err != nil {
		return nil, err
	}
	if err := c.parseKeys(r.keyLimit); err != nil {
		return nil, err
	}
	if err := c.checkPolicies(); err != nil {
		return nil, err
	}
	return c, c.checkFleet()
}

func oneOf[T ~string](flag string, text T, words ...T) error {
	if slices.Contains(words, text) {
		return nil
	}
	list := strings.Trim(fmt.Sprint(words), "[]")
	last := strings.LastIndexByte(list, ' ')
	return Usagef("%s: %q is unknown: use %s or %s", flag, text, strings.ReplaceAll(list[:last], " ", ", "), list[last+1:])
}

func within[T cmp.Ordered](flag string, value, least, most T) error {
	if least <= value && value <= most {
		return nil
	}
	return Usagef("%s: %v is not within %v to %v", flag, value, least, most)
}

// checkFleet holds the flags against each other.
func (c *Config) checkFleet() error {
	switch victims := c.Victims(); {
	case c.Spread.Hot > 0 && c.Spread.Zipf > 0:
		return Usagef("--hot and --zipf: each says which instances make the calls: give one of them")
	case c.Spread.Move > 0 && c.Spread.Even():
		return Usagef("--move %v: the load is even, so that nothing moves: give --hot 1 or --zipf 1 too", c.Spread.Move)
	case c.Spread.Move > 0 && c.Spread.Hot == c.Instances:
		return Usagef("--move: all %d instances are hot, so that nothing moves: use a lower --hot", c.Instances)
	case c.Spread.Move > 0 && c.Spread.Move < leastMove:
		return Usagef("--move: %v is less than the least, %v", c.Spread.Move, leastMove)
	case c.Spread.Move > 0 && !c.Lends():
		return Usagef("--move: where instances do not lend, what is due to load that moves is not known: it needs windows of 250ms or more, --shape fixed, and no --warm-up")
	case c.WindowOffset > 0 && !slices.ContainsFunc(c.Limits, func(l quota.Limit) bool { return l.Window > quota.MaxWindow }):
		return Usagef("--window-offset is for a limit of more than a minute, such as 5000/h, and --limit is %s", c.Limit)
	case c.WindowOffset > 0 && (c.Http || len(c.NTP) > 0):
		return Usagef("--window-offset sets the clocks of the fleet ahead, and --ntp and --transport http go by others: leave them out")
	case c.Trace != "" && len(c.NTP) > 0:
		return Usagef("--trace goes by this machine's clock, and --ntp by others: leave one out")
	case c.HTML == "-":
		return Usagef("--html: a page is for a browser: give a file, such as report.html")
	case c.Shaped() && c.MeasureAfter+c.Duration > mostCells*c.Cell():
		return Usagef("--shape %s is judged by cells of %v, and at most %s of them: --measure-after and --duration may be %v together, not %v; use a shorter time, or longer windows",
			c.policy.Shape, c.Cell(), humanize.Comma(mostCells), mostCells*c.Cell(), c.MeasureAfter+c.Duration)
	case c.Processes > c.Instances:
		return Usagef("--processes: %d for %d instances: each process needs one at least", c.Processes, c.Instances)
	case c.Churn > 0 && c.Rolling:
		return Usagef("--rolling-restart and --churn: each chooses the instances that leave: give one of them")
	case len(c.Crashes) > 0 && (c.Churn > 0 || c.Rolling):
		return Usagef("--crash, --rolling-restart and --churn: each chooses the instances that leave: give one of them")
	case len(c.Crashes) > 0 && c.Processes < 2:
		return Usagef("--crash: it kills one of several processes: use --processes 2 or more")
	case victims > 0 && c.Processes+victims > min(c.Instances, maxProcesses):
		return Usagef("--churn: those to be killed are in processes of their own for %v each, to settle and serve before: that takes %d processes beside --processes %d, and there are %d instances and at most %d processes; use a lower --churn or --churn-kill, or more --instances",
			c.victimLife(), victims, c.Processes, c.Instances, maxProcesses)
	case c.Members < 1 || c.Members > maxMembers || c.Members%2 == 0:
		return Usagef("--etcd-members: %d is not an odd number from 1 to %d", c.Members, maxMembers)
	}
	return nil
}

// noneOf refuses flags that say how an etcd is reached.
func noneOf(connection *pflag.FlagSet) (stray error) {
	connection.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			stray = Usagef("--%s is for an etcd that runs already: give --endpoints too, or leave it out for the embedded one", f.Name)
		}
	})
	return stray
}
