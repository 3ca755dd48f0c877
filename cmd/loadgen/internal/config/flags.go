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
	groups := r.register()
	var etcd *etcdflags.Flags
	connection := groups.Add("A running etcd, in place of its own", func(set *pflag.FlagSet) { etcd = etcdflags.Register(set) })
	etcd.Env = env
	var version *bool
	groups.Add("In place of a run", func(set *pflag.FlagSet) {
		set.StringVar(&r.config.Judge, "judge", "", "judge the traces in `DIR` again")
		version = set.Bool("version", false, "print the version")
	})
	set := groups.Set("loadgen")
	if asked, err := commandline.Complete("loadgen", set, args, help); asked {
		if err != nil {
			return nil, Usagef("%v; see loadgen --help", err)
		}
		return nil, pflag.ErrHelp
	}
	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			printHelp(help, groups.Usages())
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
	own, named := set.Changed("etcd-members") || len(c.Faults) > 0, connection.Changed("endpoints")
	if own && named {
		return nil, Usagef("--etcd-members and --fault are for the embedded etcd, and --endpoints names another one: leave them out, or --endpoints")
	}
	c.Etcd, c.Embedded = etcd, own || !named && env("QUOTIENT_ENDPOINTS") == ""
	if c.Embedded {
		delete(c.Asked, "endpoints")
		etcd.Env = func(string) string { return "" } // which is of another one
		return c, noneOf(connection)
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
		if f.Hidden || connection.Lookup(f.Name) != nil && f.Name != "endpoints" {
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

// register returns the flags of a run, without those of how etcd is reached.
func (r *raw) register() *commandline.Groups {
	c, p := &r.config, &r.config.policy
	groups := new(commandline.Groups)
	groups.Add("Fleet", func(set *pflag.FlagSet) {
		set.StringVar(&r.limit, "limit", "300000/s", "`PERMITS/WINDOW` of all together; several with commas: 500/2s,2000/10s")
		set.IntVar(&c.Instances, "instances", 20, "instances that share the limit")
		set.IntVar(&c.Processes, "processes", 1, "number of processes that run the instances, beside loadgen's own")
		commandline.Gone(set, "state-dir", "leave it out; instances that start after a kill join as new, and borrow at once")
		set.StringSliceVar(&c.NTP, "ntp", nil, "NTP `servers` by which each instance measures its clock, host or host:port, separated by commas")
	})
	groups.Add("Time", func(set *pflag.FlagSet) {
		set.DurationVar(&c.Duration, "duration", 10*time.Second, "time to measure, once the whole fleet is active")
		set.DurationVar(&c.MeasureAfter, "measure-after", 0, "time that the whole fleet runs before measuring begins")
		set.DurationVar(&c.WindowOffset, "window-offset", 0, "with a limit of more than a minute: set the clocks ahead, so that its window ends this long after the start; 0: leave the clocks")
	})
	groups.Add("Calls", func(set *pflag.FlagSet) {
		set.Float64Var(&c.Demand, "demand", 1.5, "calls for each permit of the shortest limit; 2: twice as many calls as permits")
		set.StringVar((*string)(&c.Arrival), "arrival", "steady", "`steady|poisson|burst|sine`: when calls come; burst: all of a window at one moment")
		set.DurationVar(&c.MaxWait, "max-wait", 100*time.Millisecond, "longest wait of a call for a permit; 0: none")
		set.IntVar(&c.Spread.Hot, "hot", 0, "number of `INSTANCES` that make calls; 0: all do")
		set.Float64Var(&c.Spread.Zipf, "zipf", 0, "some instances, or --keys, have more calls than others, by a Zipf distribution of exponent `S`; 0: all have as many")
		set.DurationVar(&c.Spread.Move, "move", 0, "time after which --hot or --zipf chooses other instances; 0: never")
		set.Uint64Var(&c.Seed, "seed", 1, "seed of what is random: calls and --zipf; the same seed makes the same calls")
		set.StringVar(&r.transport, "transport", "none", "`none|http`; http: send a request for each permit to a provider, which counts them too")
	})
	groups.Add("Keys", func(set *pflag.FlagSet) {
		set.IntVar(&c.Keys, "keys", 0, "each call is for one of `N` keys, such as accounts, each with a limit of its own; 0: no keys")
		set.StringVar(&r.keyLimit, "key-limit", "", "`LIMIT` of each key; default: the Nth part of the shortest limit")
		set.Int64Var(&p.Keys.Owners, "key-owners", 0, "instances that share the limit of a key; 0: all")
	})
	groups.Add("Policy", func(set *pflag.FlagSet) {
		set.DurationVar(&c.Settle, "settle", quota.DefaultSettle, "time before a share grows after a join, a crash or a change")
		set.StringVar((*string)(&p.Outage), "outage", string(quota.OutageHold), "`hold|stop`: while etcd is away, instances keep their share, or issue nothing")
		set.StringVar(&p.Lend, "lend", "on", "`on|off`: instances lend each other the permits that they do not need")
		set.StringVar((*string)(&p.Pacing), "pacing", string(quota.PacingOff), "`off|even`; even: permits are spread over the window")
		set.StringVar((*string)(&p.Shape), "shape", string(quota.ShapeFixed), "`fixed|sliding|bucket`: the limit is of each window of the clock, of any span of a window's length, or of a token bucket")
		set.Int64Var(&p.Burst, "burst", 0, "`PERMITS` that may come at once, with shape bucket; 0: the whole limit")
		set.DurationVar(&p.WarmUp, "warm-up", 0, "time in which the share of a started instance grows to the whole; 0: none")
		set.StringVar(&r.guard, "guard", "0s", "issue nothing for this `duration` at each edge of a window; 50ms covers the errors of clocks")
		commandline.Gone(set, "share", "leave it out; shares are equal, and instances lend what they do not need")
		commandline.Gone(set, "adapt", "leave it out; a 429 still pauses the fleet")
		commandline.Gone(set, "provider-capacity", "leave it out; --transport http counts what the provider receives")
	})
	groups.Add("Events while loadgen measures", func(set *pflag.FlagSet) {
		set.StringArrayVar(&r.changes, "change", nil, "`AT=LIMIT`, as in 5s=150000/s: change the limit; repeatable")
		set.Float64Var(&c.Churn, "churn", 0, "`instances` that leave each second, and as many join")
		set.Float64Var(&c.churnKill, "churn-kill", 0.5, "part of the leaving instances that is killed, 0 to 1; the others announce that they leave")
		set.BoolVar(&c.Rolling, "rolling-restart", false, "restart each instance once, one after the other")
		set.StringArrayVar(&r.crashes, "crash", nil, "`AT`, as in 5s: kill one of --processes, and start it again; repeatable")
	})
	groups.Add("Report", func(set *pflag.FlagSet) {
		set.Float64Var(&c.LeastUse, "least-use", 50, "fail as UNDERUSED if less than `PERCENT` came of the permits that were due (see USED below); 0: fail only if none came")
		set.StringVar(&c.JSON, "json", "", "write the report as JSON to `FILE`; -: to standard output")
		set.StringVar(&c.HTML, "html", "", "write the report as a page with charts to `FILE`; the page needs no network")
		set.StringVar(&c.Trace, "trace", "", "write a trace of what instances learn and issue into the empty folder `DIR`, and judge that too")
		set.BoolVar(&c.Quiet, "quiet", false, "print only the verdict, without progress and table")
	})
	groups.Add("etcd of its own, which loadgen starts for the run", func(set *pflag.FlagSet) {
		set.IntVar(&c.Members, "etcd-members", 1, "members of etcd; if several, each is a process")
		set.StringArrayVar(&r.faults, "fault", nil, "`AT=FAULT`, as in 5s=kill-leader, of the faults listed below; repeatable")
	})
	return groups
}

func printHelp(w io.Writer, flags string) {
	fmt.Fprint(w, `Loadgen drives a fleet of instances through Quotient and verifies that together
they never issue more permits than the limit. It counts the permits itself, by the
window that each one names, and checks with its own clock that each came in it.

With no flags: an embedded etcd, 20 instances, 300000/s, 10 s, demand 1.5, least use 50%.

Usage: loadgen [flags]
`, flags, `
loadgen completion bash|zsh|fish|powershell prints a script that completes flags.

With --endpoints (or QUOTIENT_ENDPOINTS) it uses a running etcd, and cleans up afterwards.
--etcd-members and --fault are for its own, and win over QUOTIENT_ENDPOINTS.
The faults of its own etcd are:
  `+strings.Join(faultNames, ", ")+`

From --demand 1 on, each instance makes at least one call more than its share in every window,
unless --hot or --zipf is given. --move chooses others for the first time after 0.63 of it. AT
counts from when measuring begins.

The verdict has two halves. HELD: no limit was exceeded. USED: how much of what was due came,
in the whole windows of the shortest limit. Due are the calls, up to the limit in force and to
each instance's part of it; not due is the part of instances that loadgen has killed, or that
are not ready yet. A fleet that issues less than half of what is due does not work, so that is
the least use by default. Less is right where calls come all at once (--arrival burst) and
pacing, a guard or another shape than fixed turns them away: then give a lower --least-use.

With --transport http, the count of the provider is judged if the guard covers the error of its
clock: from 50ms on. Under other shapes than fixed the verdict is on all spans of time, wherever
they begin, and the guard is the time that a call may take to the provider.

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
	if c.policy.Guard, err = quota.ParseGuard(r.guard); err != nil {
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
	case c.WindowOffset > 0 && !slices.ContainsFunc(c.Limits, func(l quota.Limit) bool { return l.Long() }):
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
