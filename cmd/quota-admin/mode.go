package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.modeCommand("pause", "Stop a provider: its instances issue nothing", `Stop a provider: its instances issue nothing until resume. Callers that wait go on
waiting. Instances that see the change stop at once, the others when their proof
of freshness ends (outage rule stop) or when etcd is back (hold).`, always(quota.ModePause))
}

func (a *app) resumeCommand() *cobra.Command {
	return a.modeCommand("resume", "End a pause", `End a pause: the mode is again what it was before, enforce or shadow. Instances
issue permits from the first window that starts a settle time later. A provider
that is not paused stays as it is.`, before)
}

func (a *app) shadowCommand() *cobra.Command {
	return a.modeCommand("shadow", "Count what would be refused, and let it pass", `Let a provider's instances count shares and refusals as ever, but let every
refusal pass. instances and top show such refusals apart, as SHADOWED. The limit is
NOT held meanwhile. For trying a limit before it is enforced.`, always(quota.ModeShadow))
}

func (a *app) enforceCommand() *cobra.Command {
	return a.modeCommand("enforce", "Refuse what exceeds the limit: the default mode", `Enforce a provider's limits: the default mode. It ends shadow, and pause too.`, always(quota.ModeEnforce))
}

// modeOf finds the mode to go to.
type modeOf func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored) (quota.Mode, error)

func always(m quota.Mode) modeOf {
	return func(context.Context, *coordinator.Admin, coordinator.Stored) (quota.Mode, error) { return m, nil }
}

// before finds the mode before the pause in the history; enforce where that does
// not reach so far.
func before(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored) (quota.Mode, error) {
	if old.Policy.Mode != quota.ModePause {
		return old.Policy.Mode, nil
	}
	records, err := admin.History(ctx, old.Provider)
	if err != nil {
		return "", err
	}
	for _, r := range records {
		if r.Old != nil && r.Old.Mode != quota.ModePause && r.Old.Mode != "" {
			return r.Old.Mode, nil
		}
	}
	return quota.ModeEnforce, nil
}

func (a *app) modeCommand(name, short, long string, mode modeOf) *cobra.Command {
	cmd := &cobra.Command{
		Use:               name + " PROVIDER",
		Short:             short,
		Long:              long,
		Example:           "  quota-admin " + name + " payments/charge --reason \"provider is down\" --wait",
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
	}
	e := a.addEdit(cmd, 1)
	e.lazy = true
	e.make = func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, at time.Time, err error) {
		p, err = toMode(ctx, admin, old, mode, e.reason, now)
		return p, at, err
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error { return e.start(a, args[0]) }
	return cmd
}

// toMode returns the policy in another mode.
func toMode(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, mode modeOf, reason string, now time.Time) (p quota.Policy, err error) {
	if err := mustExist(old); err != nil {
		return p, err
	}
	p = change.Carry(old.Policy, old.Policy, now)
	p.Author, p.Time, p.Reason = "", time.Time{}, reason
	p.Mode, err = mode(ctx, admin, old)
	return p, err
}
