package doctor

import (
	"cmp"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// silence is after how long without a report an instance has missed two.
	silence = 75 * time.Second
	// slowToApply is how long an instance may take to report a policy.
	slowToApply = 10 * time.Second
)

// judgeFleet says what is wrong with one provider's fleet at the instant now.
func judgeFleet(c *Chart, f *coordinator.Fleet, now time.Time) {
	before := c.Problems()
	switch p := &f.Policy; {
	case p.Revision == 0 && len(f.Instances) == 0:
		c.problem("fleet", f.Provider, "check the name; quota-admin list shows those that have a policy", "has neither a policy nor an instance")
		return
	case p.Revision == 0:
		c.problem("fleet", f.Provider, "quota-admin set "+f.Provider+" LIMITS", "no policy is set: its %s issue nothing", format.Count(len(f.Instances), "instance"))
	case p.Problem != nil:
		c.problem("fleet", f.Provider, "quota-admin set it anew, or quota-admin rollback", "its policy cannot be used: %s", brief(p.Problem))
	}
	var versions []string
	for i := range f.Instances {
		judgeInstance(c, f, &f.Instances[i], now)
		if v := f.Instances[i].Instance.Version; v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	if s := live.StatusOf(f, now); s.Limit != nil && s.SumOfShares > s.Limit.Permits {
		c.problem("fleet", f.Provider, "see who may write under the provider's keys (quota-admin roles list), and delete what no instance wrote",
			"shares sum to %d, more than the total of %d", s.SumOfShares, s.Limit.Permits)
	}
	if len(versions) > 1 { // fine while it is rolled out
		slices.Sort(versions)
		c.note("fleet", f.Provider, "finish the rollout", "its instances run %s %q", format.Count(len(versions), "version"), versions)
	}
	if c.Problems() == before {
		c.ok("fleet", f.Provider, "%s at policy revision %d", format.Count(len(f.Instances), "instance"), f.Policy.Revision)
	}
}

func judgeInstance(c *Chart, f *coordinator.Fleet, i *coordinator.InstanceStatus, now time.Time) {
	subject := f.Provider + " " + cmp.Or(i.Instance.Name, i.Instance.ID)
	problem := func(mend, text string, args ...any) { c.problem("fleet", subject, mend, text, args...) }
	if i.Problem != nil {
		problem("let the process register anew, or delete the key if nobody wrote it", "%s", i.Problem.Error())
	}
	r, p := i.Report, &f.Policy
	if r == nil {
		if i.Problem == nil && now.Sub(i.Instance.Started) > silence {
			problem("see its log; its role must be able to write reports (quota-admin roles)", "has never reported")
		}
		return
	}
	age := now.Sub(r.Time)
	if age > silence {
		problem("see whether it runs, and whether it reaches etcd", "has not reported for %v", age.Round(time.Second))
		return
	}
	allowed := p.Policy.WithDefaults().ClockError
	if -age > allowed+time.Second {
		problem("run chrony on its host, or on this one; or give its session NTP servers", "its report is dated %v ahead of this host's clock", (-age).Round(time.Millisecond))
	}
	said := r.Problem == "" // what it says is told
	if p.Revision != 0 && p.Problem == nil && r.PolicyRevision < p.Revision && now.Sub(p.Policy.Time) > slowToApply {
		problem("see its log; if it lags behind etcd, restart it", "applies the policy of revision %d, not %d", r.PolicyRevision, p.Revision)
	}
	if r.State == quota.StateStale {
		because := ""
		if r.Problem != "" {
			because = ": " + r.Problem
		}
		said = true
		problem("see whether it reaches etcd", "is stale%s", because)
	}
	if bound, err := time.ParseDuration(r.ClockError); err == nil && bound > allowed {
		said = true
		problem("mend its host's clock, name nearer NTP servers, or raise clock_error", "its clock may be off by %v, the policy allows %v", rounded(bound), allowed)
	} else if err != nil && p.Policy.GuardAuto {
		c.note("fleet", subject, "run chrony on its host, or give its session NTP servers", "its clock's error is %s: the guard is as large as clock_error allows", r.ClockError)
	}
	if !said {
		problem("see its log", "says: %s", r.Problem)
	}
}
