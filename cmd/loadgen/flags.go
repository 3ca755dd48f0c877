package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/internal/etcdflags"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/quota"
)

// Bounds of the flags that have some of their own.
const (
	maxInstances = 10_000
	maxDuration  = 24 * time.Hour
	maxDemand    = 1000.0
	maxMaxWait   = time.Minute
	maxProcesses = 256 // of workers, victims of churn included
	maxChurn     = 100.0
	maxMembers   = 7
)

// usageError is a command line that cannot be followed.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// raw is what the flags say, unchecked.
type raw struct {
	limit, arrival, skew, outage, share, pacing, shape, guard, ntp, transport string
	changes, faults, crashes                                                  []string
	config                                                                    config
}

// parseFlags reads the command line. It returns pflag.ErrHelp where help was
// asked for and given; every other error is a usage error, a *usageError or a
// *etcdflags.UsageError.
func parseFlags(args []string, env func(string) string, help io.Writer) (*config, error) {
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
	if err := set.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			printHelp(help, set)
			return nil, err
		}
		return nil, usagef("%v; see loadgen --help", err)
	}
	if set.NArg() > 0 {
		return nil, usagef("argument %q is not a flag; see loadgen --help", set.Arg(0))
	}
	c, err := r.check()
	if err != nil {
		return nil, err
	}
	if c.etcd, err = chooseEtcd(etcd, connection, env); err != nil {
		return nil, err
	}
	if c.etcd != nil && (set.Changed("etcd-members") || len(c.faults) > 0) {
		return nil, usagef("--etcd-members and --fault are for the embedded etcd: leave them out, or --endpoints")
	}
	return c, nil
}

func (r *raw) register(set *pflag.FlagSet) {
	c := &r.config
	set.StringVar(&r.limit, "limit", "300000/s", "the limit, as `PERMITS/WINDOW`; several with commas, such as 500/2s,2000/10s")
	set.IntVar(&c.instances, "instances", 96, "how many instances share it")
	set.IntVar(&c.processes, "processes", 1, "how many operating-system processes they run in; 1: in this one")
	set.DurationVar(&c.duration, "duration", 10*time.Second, "how long to measure, once the whole fleet is active")
	set.Float64Var(&c.demand, "demand", 1.5, "offered calls over the limit of the shortest window; from 1 on each instance makes at least one call more than its share in every window, unless --skew says otherwise")
	set.StringVar(&r.arrival, "arrival", "steady", "how calls come in time: `steady|poisson|burst|sine`")
	set.StringVar(&r.skew, "skew", "even", "how calls spread over instances: `even|zipf:S`")
	set.Uint64Var(&c.seed, "seed", 1, "what poisson and burst draw from; the same seed gives the same calls in each window")
	set.DurationVar(&c.maxWait, "max-wait", 100*time.Millisecond, "how long a refused call may wait for a permit of the next window; 0: not at all")
	set.StringArrayVar(&r.changes, "change", nil, "`AT=LIMIT`, such as 5s=150000/s: change the limit so long after measuring began; repeatable")
	set.Float64Var(&c.churn, "churn", 0, "how many `instances` leave each second, and as many join")
	set.Float64Var(&c.churnKill, "churn-kill", 0.5, "the part of them that is killed, each in a process of its own; the others announce that they leave; 0: all announce it")
	set.BoolVar(&c.rolling, "rolling-restart", false, "restart every instance once, one after the other, evenly over the measured time; each announces that it leaves, and its successor joins at that moment")
	set.StringArrayVar(&r.crashes, "crash", nil, "`AT`, such as 5s: kill one of the --processes with all its instances so long after measuring began, and start it anew; repeatable")
	set.StringVar(&r.transport, "transport", "none", "what permits are used for: `none|http`; http: each makes a request to a provider process that counts by its own clock, which is judged if the guard covers the clocks' error (auto does)")
	set.IntVar(&c.members, "etcd-members", 1, "how many members the embedded etcd has; several are a process each")
	set.StringArrayVar(&r.faults, "fault", nil, "`AT=WHAT`, such as 5s=kill-leader: what befalls the embedded etcd so long after measuring began; repeatable; "+faultNames())
	set.DurationVar(&c.warmup, "warmup", 0, "how long the whole fleet runs before measuring begins (--warm-up is another thing)")
	set.DurationVar(&c.settle, "settle", quota.DefaultSettle, "the policy's settle time: how long a larger share is held back")
	set.StringVar(&r.outage, "outage", string(quota.OutageHold), "the policy's rule for when etcd is out of reach: `hold|stop`")
	set.StringVar(&r.share, "share", string(quota.ShareEqual), "how the policy divides the limit: `equal|weighted|demand`")
	set.StringVar(&c.weights, "weights", heavyTenth, "the instances' weights under --share weighted: `tenth|zipf:S`; tenth: every tenth weighs 10, and makes ten times as many calls; zipf:S: as a skew of calls, whatever --skew is")
	set.StringVar(&r.pacing, "pacing", string(quota.PacingOff), "how the policy releases a window's permits: `off|even|adaptive`; a refused call then waits within its window too")
	set.StringVar(&r.shape, "shape", string(quota.ShapeFixed), "how the policy counts: `fixed|sliding|bucket`; under the others the verdict is on all spans of time, wherever they begin")
	set.Int64Var(&c.burst, "burst", 0, "how many `PERMITS` --shape bucket lets the fleet issue at once; 0: all of a limit's")
	set.DurationVar(&c.warmUp, "warm-up", 0, "the policy's warm-up: over this time the share of an instance that has just started grows to the whole; 0: off (--warmup is another thing)")
	set.StringVar(&r.guard, "guard", "0s", "the policy's guard: `G` at either edge of a window in which nothing is issued, such as 20ms; auto or auto+20ms follows the clock's error")
	set.StringVar(&r.ntp, "ntp", "", "NTP `servers` by which every instance measures its clock, host or host:port with commas; every instance asks every server")
	set.StringVar(&c.json, "json", "", "write the report as JSON to `FILE`, or to standard output with -")
	set.StringVar(&c.html, "html", "", "write the report as a page with charts to `FILE`; it needs no network")
	set.BoolVar(&c.quiet, "quiet", false, "no progress and no table, only the verdict")
}

func printHelp(w io.Writer, set *pflag.FlagSet) {
	fmt.Fprint(w, `Loadgen drives a fleet of instances through Quotient and verifies that together
they never issue more permits than the limit. It counts the permits itself.

With no flags: an embedded etcd, 96 instances, 300000/s, 10 s, demand 1.5.

Usage: loadgen [flags]

`, set.FlagUsagesWrapped(100), `
With --endpoints (or QUOTIENT_ENDPOINTS) it uses an etcd that runs already, and
cleans up behind itself.

Exit status: 0 the limit held, 1 it did not, 2 bad usage, 3 it could not run, saw
no whole window, or a process died that was not to. The quantiles in acquire_ns are of one in 64 permits that
were granted at once, and include two readings of the clock.
`)
}

func (r *raw) check() (*config, error) {
	c := &r.config
	var err error
	if c.limits, err = parseLimits("--limit", r.limit); err != nil {
		return nil, err
	}
	c.limit = strings.TrimSpace(r.limit)
	if c.arrival, err = load.ParseArrival(r.arrival); err != nil {
		return nil, usagef("--arrival: %v", err)
	}
	if c.skew, err = load.ParseSkew(r.skew); err != nil {
		return nil, usagef("--skew: %v", err)
	}
	c.outage = quota.Outage(r.outage)
	if c.outage != quota.OutageHold && c.outage != quota.OutageStop {
		return nil, usagef("--outage: %q is unknown: use hold or stop", r.outage)
	}
	c.share, c.pacing = quota.ShareRule(r.share), quota.Pacing(r.pacing)
	switch c.share {
	case quota.ShareEqual, quota.ShareWeighted, quota.ShareDemand:
	default:
		return nil, usagef("--share: %q is unknown: use equal, weighted or demand", r.share)
	}
	if _, err := weightsBy(c.weights, 1); err != nil {
		return nil, usagef("--weights: %v", err)
	}
	if c.weights != heavyTenth && c.share != quota.ShareWeighted {
		return nil, usagef("--weights %s is for --share weighted, and --share is %s", c.weights, c.share)
	}
	switch c.pacing {
	case quota.PacingOff, quota.PacingEven, quota.PacingAdaptive:
	default:
		return nil, usagef("--pacing: %q is unknown: use off, even or adaptive", r.pacing)
	}
	c.shape = quota.Shape(r.shape)
	if c.guard, c.guardAuto, err = quota.ParseGuard(r.guard); err != nil {
		return nil, usagef("--guard: %v", err)
	}
	if c.ntp, err = ntp.ParseServers(r.ntp); err != nil {
		return nil, usagef("--ntp: %v", err)
	}
	if err := c.checkBounds(); err != nil {
		return nil, err
	}
	if c.changes, err = parseChanges(r.changes, c.duration); err != nil {
		return nil, err
	}
	if c.faults, err = parseFaults(r.faults, c.duration); err != nil {
		return nil, err
	}
	if c.crashes, err = parseCrashes(r.crashes, c.duration); err != nil {
		return nil, err
	}
	if r.transport != "none" && r.transport != "http" {
		return nil, usagef("--transport: %q is unknown: use none or http", r.transport)
	}
	c.http = r.transport == "http"
	if err := c.checkShape(); err != nil {
		return nil, err
	}
	if err := c.checkPolicies(); err != nil {
		return nil, err
	}
	return c, c.checkFleet()
}

// checkBounds holds each number against its bounds.
func (c *config) checkBounds() error {
	switch {
	case c.instances < 1 || c.instances > maxInstances:
		return usagef("--instances: %d is not within 1 to %d", c.instances, maxInstances)
	case c.duration <= 0 || c.duration > maxDuration:
		return usagef("--duration: %v is not more than 0 and at most %v; use one such as 10s", c.duration, maxDuration)
	case !(c.demand > 0 && c.demand <= maxDemand):
		return usagef("--demand: %v is not more than 0 and at most %v; 1.5 offers half again as many calls as the limit", c.demand, maxDemand)
	case c.maxWait < 0 || c.maxWait > maxMaxWait:
		return usagef("--max-wait: %v is not within 0 to %v; 0 means that a refused call is gone", c.maxWait, maxMaxWait)
	case c.warmup < 0 || c.warmup > maxDuration:
		return usagef("--warmup: %v is not within 0 to %v", c.warmup, maxDuration)
	case c.html == "-":
		return usagef("--html: a page is for a browser: give a file, such as report.html")
	case c.settle < quota.MinSettle || c.settle > quota.MaxSettle:
		return usagef("--settle: %v is not within %v to %v", c.settle, quota.MinSettle, quota.MaxSettle)
	}
	return nil
}

// checkFleet holds against each other what says who runs where, and who leaves.
func (c *config) checkFleet() error {
	switch victims := c.victims(); {
	case c.processes < 1 || c.processes > maxProcesses:
		return usagef("--processes: %d is not within 1 to %d", c.processes, maxProcesses)
	case c.processes > c.instances:
		return usagef("--processes: %d for %d instances: each process needs one at least", c.processes, c.instances)
	case !(c.churn >= 0 && c.churn <= maxChurn):
		return usagef("--churn: %v is not within 0 to %v", c.churn, maxChurn)
	case !(c.churnKill >= 0 && c.churnKill <= 1):
		return usagef("--churn-kill: %v is not within 0 to 1; 0.5 kills half of those that leave", c.churnKill)
	case c.churn > 0 && c.rolling:
		return usagef("--rolling-restart and --churn: each says by itself who leaves: give one of them")
	case len(c.crashes) > 0 && (c.churn > 0 || c.rolling):
		return usagef("--crash, --rolling-restart and --churn: each says by itself who leaves: give one of them")
	case len(c.crashes) > 0 && c.processes < 2:
		return usagef("--crash: it kills one of several processes: use --processes 2 or more")
	case victims > 0 && c.processes+victims > min(c.instances, maxProcesses):
		return usagef("--churn: those to be killed are in processes of their own for %v each, to settle and serve before: that takes %d processes beside --processes %d, and there are %d instances and at most %d processes; use a lower --churn or --churn-kill, or more --instances",
			c.victimLife(), victims, c.processes, c.instances, maxProcesses)
	case c.members < 1 || c.members > maxMembers || c.members%2 == 0:
		return usagef("--etcd-members: %d is not an odd number from 1 to %d", c.members, maxMembers)
	}
	return nil
}

// chooseEtcd returns nil for the embedded etcd: the default, unless endpoints
// are given by flag or environment.
func chooseEtcd(etcd *etcdflags.Flags, set *pflag.FlagSet, env func(string) string) (*etcdflags.Flags, error) {
	if set.Changed("endpoints") || env("QUOTIENT_ENDPOINTS") != "" {
		return etcd, etcd.Resolve()
	}
	var stray error
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		stray = usagef("--%s is for an etcd that runs already: give --endpoints too, or leave it out for the embedded one", f.Name)
	})
	return nil, stray
}

func environment(name string) string { return os.Getenv(name) }
