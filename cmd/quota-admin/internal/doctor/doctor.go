// Package doctor finds what is wrong with etcd, this host's clock and quotad, and fleets.
// Facts are read apart from their judgement, so that a test can judge any.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// The levels of findings. Only problems count for the exit code.
const (
	ok      = "ok"
	note    = "note"
	problem = "problem"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level   string `json:"level"`
	Check   string `json:"check"`   // etcd, clock, fleet or quotad
	Subject string `json:"subject"` // the endpoint, the host, the provider or the instance
	Finding string `json:"finding"`
	Mend    string `json:"mend,omitempty"`
}

// Chart collects findings.
type Chart []Finding

func (c *Chart) add(level, check, subject, mend, text string, args ...any) {
	*c = append(*c, Finding{level, check, subject, fmt.Sprintf(text, args...), mend})
}

// Etcd looks at etcd. The error is why fleets cannot be read either. admit is what to do if etcd refuses the user.
func (c *Chart) Etcd(ctx context.Context, client *clientv3.Client, timeout time.Duration, admit string) error {
	facts := readEtcd(ctx, client, timeout)
	facts.admit = admit
	judgeEtcd(c, facts)
	return facts.quorum.err
}

// Fleets looks at the instances of the providers. If none is named these are all that have a policy,
// or an instance: a policy may be deleted, or lost, while its instances run. near returns the provider with a policy that
// a name without one may be meant to be; "" if there is none.
func (c *Chart) Fleets(ctx context.Context, operator *admin.Client, prefix string, providers []string, near func(provider string) string) error {
	lost := false
	if len(providers) == 0 {
		all, err := operator.List(ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			if quota.ValidateProvider(s.Provider) != nil {
				c.add(problem, "fleet", s.Provider, "delete the key", "%s", brief(s.Problem))
				continue
			}
			providers = append(providers, s.Provider)
		}
		registered, err := feed.Inside(operator).Registered(ctx)
		if err != nil {
			return err
		}
		providers = append(providers, registered...)
		slices.Sort(providers)
		providers = slices.Compact(providers)
		if len(all)+len(providers) == 0 {
			c.add(note, "fleet", prefix, "if there were some, run this again in 10 s: by then the instances have found this etcd, and tell the limits that it has lost; if none was ever set here: quota-admin set PROVIDER LIMITS; or check --prefix",
				"there is no policy, nor an instance")
		}
		if lost, err = noneEver(ctx, operator, all, providers); err != nil {
			return err
		}
	}
	inside := feed.Inside(operator)
	looks, err := c.looksAt(ctx, providers, inside.Fleet, operator.Observe)
	if err != nil {
		return err
	}
	if lost {
		instances := 0
		for _, l := range looks {
			instances += len(l.fleet.Instances)
		}
		c.add(problem, "fleet", prefix, cause.Export+": docs/run.md, \"Etcd is down, what now?\"; if nothing was ever set: quota-admin set PROVIDER LIMITS",
			"there is no policy at all, nor a history of one, and %s of %s are registered: etcd has lost its data, or nothing was ever set",
			format.Count(instances, "instance"), format.Count(len(providers), "provider"))
	}
	for _, p := range providers {
		l := looks[p]
		none := absence{lost: lost}
		if l.fleet.Policy.Revision == 0 && !lost {
			records, err := operator.History(ctx, p)
			if err != nil && !errors.Is(err, admin.ErrNotFound) {
				return err
			}
			none.deleted, none.near = len(records) > 0, near(p)
		}
		judgeFleet(c, &l.fleet, l.read, l.clocks, none)
	}
	return nil
}

// noneEver reports whether providers have instances, and none has a policy or a history of one: an etcd that came back
// empty. It is asked for providers that are all there are.
func noneEver(ctx context.Context, operator *admin.Client, policies []admin.Stored, providers []string) (bool, error) {
	if len(policies) > 0 || len(providers) == 0 {
		return false, nil
	}
	for _, p := range providers {
		if records, err := operator.History(ctx, p); err != nil || len(records) > 0 {
			return false, err
		}
	}
	return true, nil
}

const (
	// clocksWithin is how long instances may take to report four times: they learn within 2 s
	// that somebody looks, and then report once a second. The help names it.
	clocksWithin = 12 * time.Second
	clocksEvery  = 300 * time.Millisecond
)

// clocks are those of instances, by incarnation.
type clocks map[string]*live.Clock

// look is the last look at a fleet, and what all looks tell of the instances' clocks.
type look struct {
	fleet       protocol.Fleet
	began, read time.Time
	clocks      clocks
}

// again replaces the look by another one. It reports whether more looks would tell more.
func (l *look) again(ctx context.Context, provider string, read reading) (open bool, err error) {
	before, began := int64(0), time.Now()
	if !l.began.IsZero() {
		before = l.began.UnixNano()
	}
	f, err := read(ctx, provider)
	if err != nil {
		return false, err
	}
	l.fleet, l.began, l.read = f, began, time.Now()
	return l.clocks.see(l.read, before, &f) || doubtful(&f), nil
}

// doubtful reports whether a look shows a problem that the next one may not: reports may be of a moment before.
func doubtful(f *protocol.Fleet) bool {
	return slices.ContainsFunc(f.Instances, func(i protocol.InstanceStatus) bool { return i.Report != nil && i.Report.State == quota.StateStale }) ||
		slices.ContainsFunc(f.Budgets, func(b protocol.BudgetUse) bool { return uncounted(f, &b) > 0 })
}

// uncounted returns how many permits of the running window instances have used, if that is more than etcd counts as handed
// out and nothing is withheld: then etcd has lost what it counted. Otherwise it returns 0, as for limits that count by parts of
// time: of these, reports tell the running part alone. One look may be wrong: the total was read after the reports, and
// permits may have been given back in between.
func uncounted(f *protocol.Fleet, b *protocol.BudgetUse) (used int64) {
	if b.ByParts() || b.Withheld != "" {
		return 0
	}
	for i := range f.Instances {
		if r := f.Instances[i].Report; r != nil {
			_, n := r.InHand(&b.Budget)
			used += n
		}
	}
	if used > b.Taken {
		return used
	}
	return 0
}

// reading reads a provider's fleet, and observing makes the instances of some report often.
type (
	reading   func(ctx context.Context, provider string) (protocol.Fleet, error)
	observing func(ctx context.Context, providers ...string) (stop func(), err error)
)

// looksAt reads each fleet, those of some providers until their instances' reports tell how their
// clocks differ from this host's: these are made to report. A report that is alone and old may be
// late, or from a clock that is behind. A fleet that is doubtful is read until it is not. Looking again
// ends after clocksWithin.
func (c *Chart) looksAt(ctx context.Context, providers []string, read reading, observe observing) (map[string]*look, error) {
	all := map[string]*look{}
	var open []string // providers to look at again
	for i, p := range providers {
		all[p] = &look{clocks: clocks{}}
		more, err := all[p].again(ctx, p, read)
		if err != nil {
			return nil, err
		}
		if more && i < live.RememberedAtMost {
			open = append(open, p)
		}
	}
	if len(open) == 0 {
		return all, nil
	}
	within, cancel := context.WithTimeout(ctx, clocksWithin)
	defer cancel()
	stop, err := observe(within, open...)
	switch {
	case errors.Is(err, coordinator.ErrPermission):
		c.add(note, "clock", "instances", "run doctor as a user with an operator's role", "whether a clock is behind is not known: this user may not make instances report often")
		return all, nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		c.add(note, "clock", "instances", "make room in etcd first", "whether a clock is behind is not known: a full etcd cannot have instances report often")
		return all, nil
	case err != nil:
		return nil, err
	}
	defer stop()
	for len(open) > 0 {
		select {
		case <-within.Done():
			return all, ctx.Err()
		case <-time.After(clocksEvery):
		}
		var still []string
		for _, p := range open {
			more, err := all[p].again(within, p, read)
			switch {
			case within.Err() != nil:
				return all, ctx.Err()
			case err != nil:
				return nil, err
			case more:
				still = append(still, p)
			}
		}
		open = still
	}
	return all, nil
}

// see takes a look at a fleet, and returns whether more looks would tell more.
func (c clocks) see(now time.Time, before int64, f *protocol.Fleet) (open bool) {
	for i := range f.Instances {
		s := &f.Instances[i]
		if s.Report == nil || now.Sub(s.Report.Time) > silence {
			continue
		}
		if c[s.Instance.ID] == nil {
			c[s.Instance.ID] = new(live.Clock)
		}
		c[s.Instance.ID].See(now.UnixNano(), before, s.Report)
		_, told := c[s.Instance.ID].Told()
		open = open || !told
	}
	return open
}

// Problems counts them.
func (c *Chart) Problems() (n int) {
	for _, f := range *c {
		if f.Level == problem {
			n++
		}
	}
	return n
}

// Table writes a line for each finding, and one for what to do.
func (c *Chart) Table(w io.Writer) {
	format.Row(w, "LEVEL", "CHECK", "SUBJECT", "FINDING")
	for _, f := range *c {
		format.Row(w, f.Level, f.Check, format.Name(f.Subject), format.Show(f.Finding))
		if f.Mend != "" {
			format.Row(w, "", "", "", "do: "+format.Show(f.Mend))
		}
	}
}

// brief returns an error without what its place says already.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, " desc = "); ok {
		text = after
	}
	return etcdcall.Unnamed(text)
}

const (
	// silence is after how long without a report an instance has missed two.
	silence = 75 * time.Second
	// slowToApply is how long an instance may take to report a policy.
	slowToApply = 10 * time.Second
)

func judgeFleet(c *Chart, f *protocol.Fleet, now time.Time, known clocks, none absence) {
	before := c.Problems()
	then := "do not follow that"
	if len(f.Policy.Policy.Unsupported()) > 0 {
		then = "issue nothing by it"
	}
	switch p := &f.Policy; {
	case p.Revision == 0 && len(f.Instances) == 0:
		c.add(problem, "fleet", f.Provider, "check the name; quota-admin list shows those that have a policy", "has neither a policy nor an instance")
		return
	case p.Revision == 0:
		c.unlimited(f, none)
	case p.Problem != nil:
		c.add(problem, "fleet", f.Provider, "quota-admin set it anew, or quota-admin rollback", "its policy cannot be used: %s", brief(p.Problem))
	case len(p.Policy.Ignored) > 0:
		c.add(problem, "fleet", f.Provider, "quota-admin set "+f.Provider+" LIMITS writes it without that",
			"its policy has %s, which went with an earlier version: instances of this version %s", strings.Join(p.Policy.Ignored, " and "), then)
	default:
		c.stopped(f, now)
	}
	var versions []string
	for i := range f.Instances {
		judgeInstance(c, f, &f.Instances[i], now, known)
		if v := f.Instances[i].Instance.Version; v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	for _, b := range f.Budgets {
		if b.Withheld != "" {
			c.add(problem, "fleet", f.Provider, cause.GiveCount(f.Provider, b.Limit, b.Resumes != 0),
				"nothing more of %s is handed out%s, because %s", b.Limit, until(&b), b.Withheld)
		}
		if used := uncounted(f, &b); used > 0 {
			c.add(problem, "fleet", f.Provider, fmt.Sprintf("quota-admin budget %s --withhold; then %s", f.Provider, cause.GiveCount(f.Provider, b.Limit, true)),
				"its instances have used %d of %s, and etcd counts %d of them: it was restored, or runs on an older disk, and hands the others out again", used, b.Limit, b.Taken)
		}
	}
	for _, b := range live.StatusOf(f, now).Budgets {
		if b.Flight != nil && b.Flight.Ended > 0 && b.Left == 0 {
			c.add(note, "fleet", f.Provider, "run it again: of those that were taken a moment ago it tells no more; for the others wait, or use a shorter hold if calls are shorter; if a count was given of calls that have ended since, give another one: quota-admin budget "+f.Provider+" --used N",
				"%d of %s were %s", b.Flight.Ended, b.Limit, cause.Stranded)
		}
		if b.Flight != nil && b.Flight.Forgotten > 0 {
			c.add(note, "fleet", f.Provider, cause.EndCalls, "%s (%d since the instances began)", cause.Forgotten, b.Flight.Forgotten)
		}
	}
	for _, b := range f.KeysWithheld {
		c.add(problem, "fleet", f.Provider, "give the provider's counts: quota-admin budget "+f.Provider+" --key KEY --used N, or --keys-file FILE; then --keys-unused for all other keys",
			"nothing more of %s is handed out%s of keys that were given no count since, because %s", b.Limit, until(&b), b.Withheld)
	}
	if n := refusedKeys(f); n > 0 {
		c.add(note, "fleet", f.Provider, "quota-admin top "+f.Provider+" --by key shows them"+live.LeftOfKey(&f.Policy.Policy, f.Provider), "calls of %s are refused", format.Count(n, "key"))
	}
	s := live.StatusOf(f, now)
	if s.Limit != nil && s.SumOfShares > s.Limit.Permits {
		c.add(problem, "fleet", f.Provider, "check the roles that may write under the provider's keys (quota-admin roles list), and delete keys that no instance wrote",
			"shares sum to %d, more than the total of %d", s.SumOfShares, s.Limit.Permits)
	}
	if len(versions) > 1 { // fine while it is rolled out
		slices.Sort(versions)
		c.add(note, "fleet", f.Provider, "finish the rollout", "its instances run %s %q", format.Count(len(versions), "version"), versions)
	}
	switch {
	case len(f.Instances) == 0:
		c.absent(f)
	case c.Problems() == before:
		c.add(ok, "fleet", f.Provider, "", "%s at policy revision %d", format.Count(len(f.Instances), "instance"), f.Policy.Revision)
	}
}

// refusedKeys returns how many of the busiest keys have refused calls.
func refusedKeys(f *protocol.Fleet) (n int) {
	for _, k := range live.BusiestKeys(f) {
		if k.Refused > 0 {
			n++
		}
	}
	return n
}

// until says when the withholding of a limit ends by itself; "" if that is not known.
func until(b *protocol.BudgetUse) string {
	if b.Resumes == 0 {
		return ""
	}
	return " until " + cause.Until(b.Limit, format.Latest(time.Unix(0, b.Resumes)))
}

func judgeInstance(c *Chart, f *protocol.Fleet, i *protocol.InstanceStatus, now time.Time, known clocks) {
	subject := f.Provider + " " + cmp.Or(i.Instance.Name, i.Instance.ID)
	bad := func(mend, text string, args ...any) { c.add(problem, "fleet", subject, mend, text, args...) }
	if i.Problem != nil {
		bad("let the process register anew, or delete the key if nobody wrote it", "%s", i.Problem.Error())
	}
	r, p := i.Report, &f.Policy
	if r == nil {
		if i.Problem == nil && now.Sub(i.Instance.Started) > silence {
			bad("see its log; its role must be able to write reports (quota-admin roles)", "has never reported")
		}
		return
	}
	age := now.Sub(r.Time)
	if age > silence {
		bad("if older data have just been put into etcd, run this again in 10 s: by then registrations of that time are gone; else see whether it runs, and whether it reaches etcd", "has not reported for %v", age.Round(time.Second))
		return
	}
	allowed := p.Policy.WithDefaults().ClockError
	const mend = "run chrony on its host, or on this one; or give its session NTP servers"
	if -age > allowed+time.Second {
		bad(mend, "its report is dated %v ahead of this host's clock", (-age).Round(time.Millisecond))
	} else if k := known[i.Instance.ID]; k != nil {
		if ahead, _ := k.Told(); ahead < 0 {
			bad(mend, "its clock is %v behind this host's, by three reports or more", (-ahead).Round(100*time.Millisecond))
		}
	}
	said := r.Problem == "" // what it says is told
	starts := r.State == quota.StateJoining && now.Before(settled(&i.Instance, p))
	if !starts && p.Revision != 0 && p.Problem == nil && r.PolicyRevision < p.Revision && now.Sub(p.Policy.Time) > slowToApply {
		bad("see its log; if it lags behind etcd, restart it", "applies the policy of revision %d, not %d", r.PolicyRevision, p.Revision)
	}
	if r.State == quota.StateStale {
		bad("see whether it reaches etcd", "%s", cause.Says(r.State, 0, r.Problem))
		said = true
	}
	if bound, err := time.ParseDuration(r.ClockError); err == nil && bound > allowed {
		said = true
		bad(cause.SetClock, "%s", cause.Clock(bound, allowed))
	}
	switch {
	case p.Revision == 0 && unset(f.Provider, r.Problem): // said of the fleet
	case starts:
		c.add(note, "fleet", subject, "nothing, unless it lasts", "%s", cause.Says(r.State, 0, r.Problem))
	case said:
	case cause.InShadow(r.Problem):
		c.add(note, "fleet", subject, "nothing; it would pause in mode enforce", "%s", r.Problem)
	case r.State == quota.StatePausing:
		c.add(note, "fleet", subject, cause.EndPause(r.Problem), "%s", cause.Says(r.State, 0, r.Problem))
	case r.Debt > 0 && r.State == quota.StateActive:
		bad(cause.PayLess, "%s", cause.Says(r.State, r.Debt, r.Problem))
	default:
		bad(cmp.Or(cause.Command(r.Problem), "see its log"), "says: %s", r.Problem)
	}
}

// settled is the time by which an instance has a share, if nothing is wrong.
func settled(i *protocol.Instance, p *protocol.Stored) time.Time {
	began, policy := i.Started, p.Policy.WithDefaults()
	if p.Policy.Time.After(began) {
		began = p.Policy.Time
	}
	due := began.Add(policy.Settle + 2*protocol.LongestWindow(&policy))
	if i.From.After(due) {
		due = i.From
	}
	return due.Add(slowToApply)
}

// Clock measures this host's clock, by the kernel and by NTP servers.
func (c *Chart) Clock(ctx context.Context, servers []string) {
	judgeClock(c, measureClock(ctx, servers))
}

type clockFacts struct {
	kernel      time.Duration // bound on the error, by the kernel
	kernelKnown bool
	servers     []ntp.ServerStatus
	health      clock.Health
	offset      time.Duration // by how much the clock is ahead; if measured
	bound       time.Duration // of offset's error
	measured    bool
}

// clockPatience is how long NTP servers may take: two questions of a burst, one
// of which may be lost.
const clockPatience = 5 * time.Second

func measureClock(ctx context.Context, servers []string) *clockFacts {
	f := &clockFacts{}
	f.kernel, f.kernelKnown = ntp.Kernel()
	if len(servers) == 0 {
		return f
	}
	c := clock.New()
	w, err := ntp.New(c, servers, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		f.health.Problem = err.Error()
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	w.First(ctx)
	if c.Health().Answering < len(servers) {
		<-ctx.Done() // let the slow ones answer
	}
	f.servers, f.health = w.Servers(), c.Health()
	if bound, known := c.Measured(); known {
		// The first estimate set the clock: what the operating system's is ahead
		// of it now, it was ahead of true time.
		now := c.Now()
		f.offset, f.bound, f.measured = time.Duration(now.Wall-now.Mono-c.Offset()), bound, true
	}
	cancel()
	running.Wait()
	return f
}

// judgeClock says what of the facts is wrong, by the default bound on a clock's
// error: policies may be stricter.
func judgeClock(c *Chart, f *clockFacts) {
	const host = "this host"
	switch {
	case !f.kernelKnown && !f.measured:
		c.add(note, "clock", host, "run chrony, or name servers by --ntp", "no NTP daemon is running here, so the clock's error is unknown")
	case f.kernelKnown && f.kernel > quota.DefaultClockError:
		c.add(note, "clock", host, "give its daemon nearer servers, or shorter polls", "the kernel bounds its clock's error by %v only, more than %v", rounded(f.kernel), quota.DefaultClockError)
	case f.kernelKnown:
		c.add(ok, "clock", host, "", "the kernel bounds its clock's error by %v", rounded(f.kernel))
	}
	for _, s := range f.servers {
		switch {
		case !s.Answers:
			c.add(problem, "clock", s.Address, "name another server; NTP is UDP port 123, which firewalls may drop", "gives no time: %s", cmp.Or(s.Problem, "no answer yet"))
		case f.measured && !s.Agrees:
			c.add(problem, "clock", s.Address, "name another server", "disagrees with the other servers by %v", rounded(s.Offset))
		default:
			c.add(ok, "clock", s.Address, "", "bounds the error by %v", rounded(s.Distance))
		}
	}
	switch {
	case f.health.Problem != "":
		c.add(problem, "clock", host, "name three servers or more that agree", "cannot be measured: %s", f.health.Problem)
	case !f.measured:
	case max(f.offset, -f.offset)+f.bound > quota.DefaultClockError:
		c.add(problem, "clock", host, "run chrony on it (chronyc makestep sets it at once); sessions with NTP servers of their own need not that",
			"its clock is off by %v, give or take %v", rounded(f.offset), rounded(f.bound))
	default:
		c.add(ok, "clock", host, "", "its clock is off by %v, give or take %v", rounded(f.offset), rounded(f.bound))
	}
}
