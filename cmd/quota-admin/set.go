package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// settings are the flags of set. Those that were not given leave the policy as
// it is.
type settings struct {
	limits                               []quota.Limit
	reason                               string
	settle, freshness, clockError, guard time.Duration
	outage                               string
	given                                func(flag string) bool
}

// setResult is what set shows as JSON.
type setResult struct {
	Provider string      `json:"provider"`
	Old      *storedJSON `json:"old"` // null where there was none
	New      storedJSON  `json:"new"`
}

func (a *app) setCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "set PROVIDER LIMITS",
		Short: "Set the limits of a provider",
		Long: `Set the limits of a provider. What no flag names stays as it is; a new policy
starts with the defaults.

Without --if-revision the change is refused with exit code 4 if somebody else
changes the policy at the same moment.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign
  quota-admin set payments/charge 500/2s,10000/1m --if-revision 17`,
		Args:              exactly("PROVIDER", "LIMITS"),
		ValidArgsFunction: a.completeProvider,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&s.reason, "reason", "", "`why`, for the history")
	revision := addRevisionFlag(cmd, 0, "set only if the policy has revision `N`; 0: only if there is none")
	flags.DurationVar(&s.settle, "settle", 0, "how long a larger share is held back; new policies: 3s")
	flags.DurationVar(&s.freshness, "freshness", 0, "how old the proof of a view may be; new policies: five sixths of settle")
	flags.DurationVar(&s.clockError, "clock-error", 0, "bound on the error of a host's clock; new policies: 50ms")
	flags.StringVar(&s.outage, "outage", "", "`rule` for instances cut off from etcd: hold the last share, or stop; new policies: hold")
	flags.DurationVar(&s.guard, "guard", 0, "issue nothing so near to a window's edges; 0 is off")
	s.given = flags.Changed
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.limits, err = quota.ParseLimits(args[1]); err != nil {
			return err
		}
		if err := errors.Join(revision.check(), s.check(cmd)); err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
			return a.set(ctx, admin, args[0], &s, revision)
		})
	}
	return cmd
}

// check finds what is wrong with the flags themselves.
func (s *settings) check(cmd *cobra.Command) error {
	times := []struct {
		flag  string
		value time.Duration
	}{{"settle", s.settle}, {"freshness", s.freshness}, {"clock-error", s.clockError}}
	for _, t := range times {
		if s.given(t.flag) && t.value <= 0 {
			return usageError(cmd, "--%s %v: must be more than 0", t.flag, t.value)
		}
	}
	if s.given("guard") && s.guard < 0 {
		return usageError(cmd, "--guard %v: must not be negative; 0 switches it off", s.guard)
	}
	if o := quota.Outage(s.outage); s.given("outage") && o != quota.OutageHold && o != quota.OutageStop {
		return usageError(cmd, "--outage %q: must be hold or stop", s.outage)
	}
	return nil
}

// set reads, changes and writes. The write is bound to what was read, so that
// "keeps the rest" is true of what was there.
func (a *app) set(ctx context.Context, admin *coordinator.Admin, provider string, s *settings, revision *revisionFlag) error {
	old, err := admin.Get(ctx, provider)
	exists := err == nil
	if err != nil && !errors.Is(err, coordinator.ErrNotFound) {
		return err
	}
	if err := revision.conflict(provider, old.Revision); err != nil {
		return err
	}
	if exists && !readable(old) {
		return fmt.Errorf("the policy of %s at revision %d cannot be read, so the rest of it cannot be kept: %s; delete it first",
			provider, old.Revision, problem(old))
	}
	policy := s.apply(old.Policy)
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("refused: %s", oneLine(err))
	}
	stored, err := admin.Put(ctx, provider, policy, old.Revision)
	if err != nil {
		return err
	}
	result := setResult{Provider: provider, New: toJSON(stored)}
	if exists {
		result.Old = new(toJSON(old))
	}
	if err := a.emit(result, func(w io.Writer) { writeChange(w, old, stored) }); err != nil {
		return err
	}
	for _, line := range effects(old.Policy, stored.Policy) {
		a.note("%s", line)
	}
	return nil
}

// apply returns the policy that the settings make of the one that was there; an
// old policy without limits stands for none.
func (s *settings) apply(old quota.Policy) quota.Policy {
	p := old.Clone()
	p.Author, p.Time = "", time.Time{} // of this change, not of the last
	p.Limits = s.limits
	p.Reason = s.reason
	if s.given("settle") {
		// A freshness that was left at its default follows the settle time.
		was := quota.Policy{Settle: old.Settle}.WithDefaults()
		if old.Freshness == was.Freshness {
			p.Freshness = 0
		}
		p.Settle = s.settle
	}
	if s.given("freshness") {
		p.Freshness = s.freshness
	}
	if s.given("clock-error") {
		p.ClockError = s.clockError
	}
	if s.given("outage") {
		p.Outage = quota.Outage(s.outage)
	}
	if s.given("guard") {
		p.Guard = s.guard
	}
	return p.WithDefaults()
}
