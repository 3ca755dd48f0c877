package doctor

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

// absence is what is known of a provider without a policy.
type absence struct {
	lost, deleted bool   // etcd has no policy at all, nor a history of one; there is a history of this provider
	near          string // the provider with a policy whose name is nearly the same; "" if there is none
}

// unlimited says that a provider has no limit, which it was by its instances, and what to do, for each cause one thing. Each
// command that sets a limit has --create: by then another provider may be there whose name is nearly the same.
func (c *Chart) unlimited(f *protocol.Fleet, a absence) {
	provider := cause.ShellWord(f.Provider)
	text, limits, then := "no limit is set", "LIMITS", ""
	var lost cause.Lost
	for _, i := range f.Instances {
		if i.Report == nil || lost.Was != "" {
			continue
		}
		if lost = cause.LostBy(i.Report.Problem); lost.Was != "" {
			text, limits = "no limit is set any more; it was "+lost.Was, lost.Set
		}
	}
	if lost.Mode != "" {
		then = "; then quota-admin " + lost.Mode + " " + provider
	}
	set := "quota-admin set " + provider + " " + limits + " --create"
	mend := "compare the name with quota-admin list, or set a limit: " + set
	switch {
	case a.deleted:
		mend = "quota-admin history " + provider + " tells who deleted it; " + set + " sets it again" + then
	case lost.Was != "" && a.lost:
		mend = "without an export (only that has overrides of keys and announced changes): " + set + " --withhold" + then
	case lost.Was != "": // a backup may be of before it was set
		mend = cause.Export + "; without one " + set + " --withhold" + then + ": etcd has lost it"
	case a.lost:
		mend = set + ", and with --withhold if there was one"
	case a.near != "":
		mend = "did you mean " + a.near + "? Otherwise set a limit: " + set
	}
	issue := "issue"
	if len(f.Instances) == 1 {
		issue = "issues"
	}
	c.add(problem, "fleet", f.Provider, mend, "%s: its %s %s nothing", text, format.Count(len(f.Instances), "instance"), issue)
}

// unset reports whether a problem says no more than that no limit is set.
func unset(provider, problem string) bool {
	return cause.LostBy(problem).Was != "" || problem == cause.NoLimit(provider)
}

// stopped says by what part of its policy a provider issues nothing, and how to end that. It is a note: somebody may have
// meant it.
func (c *Chart) stopped(f *protocol.Fleet, now time.Time) {
	p, provider := &f.Policy.Policy, cause.ShellWord(f.Provider)
	if p.Mode == quota.ModePause {
		c.add(note, "fleet", f.Provider, "quota-admin resume "+provider+" ends it", "%s: no call has a permit", cause.PausedBy(p.Author, p.Reason, p.Time))
	}
	if p.Mode == quota.ModeShadow { // calls pass
		return
	}
	limits := slices.Clone(p.LimitsAt(now.UnixNano())) // with announced changes, but without long limits
	for _, l := range p.Limits {
		if l.Long() {
			limits = append(limits, l)
		}
	}
	for _, l := range limits {
		if l.Permits == 0 {
			c.add(note, "fleet", f.Provider, "quota-admin set "+provider+" LIMITS raises it", "%s", cause.PermitsNone(l))
		}
	}
}

// absent says that a provider has no instance, and what keeps some away that should run. It is a note: perhaps none should.
func (c *Chart) absent(f *protocol.Fleet) {
	c.add(note, "fleet", f.Provider, "nothing, if no program should run now; else look at problem, error and found in its log: permission denied is ended by "+
		cause.RoleCommand(f.Provider)+", an expired certificate by a new one in its file", "no instance is registered, at policy revision %d", f.Policy.Revision)
}
