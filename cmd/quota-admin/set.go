package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// settings are the flags of set. Those that were not given leave the policy as
// it is.
type settings struct {
	limits                        []quota.Limit
	reason                        string
	at                            string
	duration                      time.Duration
	settle, freshness, clockError time.Duration
	guard                         string
	outage                        string
	maxStep                       *factor
	create                        bool
	sharing                       sharing
	given                         func(flag string) bool
}

func (a *app) setCommand() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "set PROVIDER LIMITS",
		Short: "Set the limits of a provider, now or for later",
		Long: `Set the limits of a provider. What no flag names stays as it is; a new policy
starts with the defaults.

With --at the change is written now and comes into force with the first window
that starts at TIME or later, at the same window on every instance and without
loss. TIME is 2027-01-01T00:00:00Z, 2027-01-01 00:00 or 00:00 (local time), or
+90s. With --for the limits return by themselves to what they would be then.
Announced changes stay when limits are set; get shows them, cancel removes them.

A change of more than --max-step times up or down is refused as a typing error,
unless --force says that it is meant. So is a new provider whose name is nearly that
of another, unless --create says so; on a terminal it asks.

Without --if-revision the change is refused with exit code 4 if somebody else
changes the policy at the same moment.`,
		Example: `  quota-admin set payments/charge 300000/s --reason campaign --wait
  quota-admin set payments/charge 150000/s --at 00:00
  quota-admin set payments/charge 500000/s --at 2027-01-01T00:00:00Z --for 2h
  quota-admin set payments/charge 500/2s,10000/1m --if-revision 17 --dry-run`,
		Args:              exactly("PROVIDER", "LIMITS"),
		ValidArgsFunction: a.completeProvider,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&s.at, "at", "", "announce it for `TIME`, at least settle + 2 clock errors ahead")
	flags.DurationVar(&s.duration, "for", 0, "return by itself after this time")
	e := a.addEdit(cmd, 0)
	e.addSteps()
	flags.BoolVar(&s.create, "create", false, "set a new provider although one has nearly the same name")
	flags.DurationVar(&s.settle, "settle", 0, "how long a larger share is held back; new policies: 3s")
	flags.DurationVar(&s.freshness, "freshness", 0, "how old the proof of a view may be; new policies: five sixths of settle")
	flags.DurationVar(&s.clockError, "clock-error", 0, "bound on the error of a host's clock; new policies: 50ms")
	flags.StringVar(&s.outage, "outage", "", "`rule` for instances cut off from etcd: hold the last share, or stop; new policies: hold")
	flags.StringVar(&s.guard, "guard", "", "issue nothing within `G` of a window's edges: 20ms; auto or auto+20ms follows the clock's error; 0 is off")
	s.sharing.register(cmd)
	s.given, s.maxStep = flags.Changed, &e.maxStep
	e.make = func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (quota.Policy, time.Time, error) {
		s.reason = e.reason
		if old.Revision == 0 && !s.create && !e.revision.given() {
			if err := a.mayCreate(ctx, admin, old.Provider); err != nil {
				return quota.Policy{}, time.Time{}, err
			}
		}
		return s.apply(old.Policy, now)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.limits, err = quota.ParseLimits(args[1]); err != nil {
			return err
		}
		if err := errors.Join(e.revision.check(), s.check(cmd)); err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
			return e.run(ctx, a, admin, args[0])
		})
	}
	return cmd
}

// check finds what is wrong with the flags themselves.
func (s *settings) check(cmd *cobra.Command) error {
	times := []struct {
		flag  string
		value time.Duration
	}{{"settle", s.settle}, {"freshness", s.freshness}, {"clock-error", s.clockError}, {"for", s.duration}}
	for _, t := range times {
		if s.given(t.flag) && t.value <= 0 {
			return usageError(cmd, "--%s %v: must be more than 0", t.flag, t.value)
		}
	}
	if s.given("at") {
		if _, err := parseWhen(s.at, time.Now()); err != nil {
			return usageError(cmd, "--at %v", err)
		}
	}
	if s.given("guard") {
		fixed, _, err := quota.ParseGuard(s.guard)
		switch {
		case err != nil:
			return usageError(cmd, "--guard: %v", err)
		case fixed < 0:
			return usageError(cmd, "--guard %v: must not be negative; 0 switches it off", s.guard)
		}
	}
	if err := s.sharing.check(cmd); err != nil {
		return err
	}
	if o := quota.Outage(s.outage); s.given("outage") && o != quota.OutageHold && o != quota.OutageStop {
		return usageError(cmd, "--outage %q: must be hold or stop", s.outage)
	}
	return nil
}

// apply returns the policy that the settings make of the one that was there, and
// the instant that it is announced for, if any. An old policy without limits
// stands for none.
func (s *settings) apply(old quota.Policy, now time.Time) (p quota.Policy, at time.Time, err error) {
	p = old.Clone()
	p.Author, p.Time = "", time.Time{} // of this change, not of the last
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
		if p.Guard, p.GuardAuto, err = quota.ParseGuard(s.guard); err != nil {
			return p, at, err
		}
	}
	if err := s.sharing.apply(&p, s.given); err != nil {
		return p, at, err
	}
	if s.given("max-step") {
		p.MaxStep = float64(*s.maxStep)
	}
	if s.given("at") {
		if at, err = parseWhen(s.at, now); err != nil {
			return p, at, err
		}
	}
	p, err = change.SetLimits(old, p, s.limits, change.Timing{At: at, For: s.duration}, now)
	if err != nil {
		return p, at, refused(err)
	}
	return p.WithDefaults(), at, nil
}
