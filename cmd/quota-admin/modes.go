package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) modeCommands() (all []*cobra.Command) {
	for _, m := range []struct {
		name                         string
		mode                         quota.Mode // "" ends a pause
		already, short, reason, long string
	}{
		{"pause", quota.ModePause, "is paused already", "Stop a provider: its instances issue nothing", "provider is down",
			`Stop a provider: its instances issue nothing until resume. Waiting callers keep
waiting. Instances that see the change stop immediately. The others stop when their
proof of freshness expires (outage rule stop) or when etcd is back (hold).`},
		{"resume", "", "is not paused", "End a pause, and a back-off", "provider is back",
			`End a pause: the mode returns to the one before, enforce or shadow. Instances that
see the change issue permits immediately, under a shape other than fixed a settle
time later. A provider that is not paused does not change.

A back-off ends too: a pause that the provider has asked for, or a total that its
429s have lowered. get shows it.`},
		{"shadow", quota.ModeShadow, "is in shadow mode already", "Count refusals, but let every call pass", "trial of 300/s",
			`Let a provider's instances count shares and refusals as usual, but let every call
pass. instances and top show such refusals separately, as SHADOWED. The limit is NOT
held meanwhile. Use it to try a limit before it is enforced.`},
		{"enforce", quota.ModeEnforce, "already in force", "Refuse calls beyond the limit: the default mode", "trial is over",
			`Enforce a provider's limits: the default mode. It ends shadow and pause.`},
	} {
		cmd := &cobra.Command{
			Use:     m.name + " PROVIDER",
			Short:   m.short,
			Long:    m.long,
			Example: "  quota-admin " + m.name + " payments/charge --reason \"" + m.reason + "\" --wait",
		}
		e := a.edits(cmd, 1)
		e.lazy, e.exists, e.resume, e.already = true, true, m.mode == "", m.already
		e.next = func(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) (quota.Policy, error) {
			return toMode(ctx, operator, old, m.mode, now)
		}
		all = append(all, cmd)
	}
	return all
}

// endBackoff ends a back-off, and reports whether there was one. A dry run only looks for it.
func (e *edit) endBackoff(ctx context.Context, operator *admin.Client, provider string) (ended bool, err error) {
	if !e.dryRun {
		return operator.Resume(ctx, provider)
	}
	t, err := feed.Inside(operator).Throttle(ctx, provider)
	return t != nil, err
}

// toMode returns the policy in another mode; "" ends a pause.
func toMode(ctx context.Context, operator *admin.Client, old admin.Stored, mode quota.Mode, now time.Time) (p quota.Policy, err error) {
	p = change.Carry(old.Policy, old.Policy, now)
	if p.Mode = mode; mode == "" {
		p.Mode, err = modeBefore(ctx, operator, old)
	}
	return p, err
}

// modeBefore finds the mode before the pause in the history; enforce where that
// does not reach so far.
func modeBefore(ctx context.Context, operator *admin.Client, old admin.Stored) (quota.Mode, error) {
	if old.Policy.Mode != quota.ModePause {
		return old.Policy.Mode, nil
	}
	records, err := operator.History(ctx, old.Provider)
	for _, r := range records {
		if r.Old != nil && r.Old.Mode != quota.ModePause && r.Old.Mode != "" {
			return r.Old.Mode, nil
		}
	}
	return quota.ModeEnforce, err
}

func (a *app) cancelCommand() *cobra.Command {
	var at time.Time
	cmd := &cobra.Command{
		Use:   "cancel PROVIDER",
		Short: "Cancel announced changes",
		Long: `Cancel the changes that set --at and set --for announced: all of them, or with
--at the one for TIME. The limits in force stay in force, even those that were set
for a time only. Cancelling a change less than settle + 2 clock errors before its
time may cost some permits; the limit is never exceeded.`,
		Example: `  quota-admin cancel payments/charge
  quota-admin cancel payments/charge --at 2027-01-01T00:00:00Z --reason "postponed"`,
	}
	addFlag(a, cmd, &at, "at", when, "only the change that is announced for `TIME`, as get shows it")
	e := a.edits(cmd, 1)
	e.exists = true
	e.next = func(_ context.Context, _ *admin.Client, old admin.Stored, now time.Time) (p quota.Policy, err error) {
		if p, err = change.Cancel(old.Policy, at, now); err != nil {
			err = fmt.Errorf("%s: %w", old.Provider, err)
		}
		return p, err
	}
	return cmd
}

func (a *app) rollbackCommand() *cobra.Command {
	revision := int64(0)
	cmd := &cobra.Command{
		Use:   "rollback PROVIDER REVISION",
		Short: "Set a policy as it was at a revision",
		Long: `Set a whole policy as it was at a revision that history shows, as a new change.
Changes announced then whose time has passed are in force; the others are announced
again. The greatest step is not checked, since the policy was in force before.`,
		Example: `  quota-admin rollback payments/charge 17 --wait
  quota-admin rollback payments/charge 17 --dry-run`,
	}
	e := a.edits(cmd, 0)
	e.lazy, e.already = true, noChange
	cmd.PreRun = func(_ *cobra.Command, args []string) {
		revision = revisionOf(args[1])
		if e.reason == "" {
			e.reason = "rollback to revision " + args[1]
		}
	}
	e.next = func(ctx context.Context, operator *admin.Client, old admin.Stored, now time.Time) (p quota.Policy, err error) {
		past, err := policyAt(ctx, operator, old, revision)
		if err == nil && past == nil {
			err = fmt.Errorf("at revision %d %s had no policy: delete does that", revision, old.Provider)
		}
		if err != nil {
			return p, err
		}
		return change.Carry(old.Policy, *past, now), nil
	}
	return cmd
}

// policyAt returns the policy as it was written at a revision, and nil where
// that change deleted it.
func policyAt(ctx context.Context, operator *admin.Client, now admin.Stored, revision int64) (*quota.Policy, error) {
	if p := policyIn(now); revision == now.Revision && p != nil {
		return p, nil
	}
	records, err := operator.History(ctx, now.Provider)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		switch {
		case r.Revision == revision && r.Problem != nil:
			return nil, r.Problem
		case r.Revision == revision:
			return r.New, nil
		case r.OldRevision == revision && r.Old != nil:
			return r.Old, nil
		}
	}
	if len(records) == 0 {
		return nil, notFound(now.Provider+" has no history", "quota-admin history --all shows the changes of all providers")
	}
	return nil, notFound(fmt.Sprintf("%s was not changed at revision %d; the history goes from %d to %d",
		now.Provider, revision, records[len(records)-1].Revision, records[0].Revision))
}

func (a *app) deleteCommand() *cobra.Command {
	var reason string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use:   "delete PROVIDER",
		Short: "Delete the policy of a provider; its instances then issue nothing",
		Long: `Delete the policy of a provider. Its instances then issue nothing until a policy
is set again. The overrides of its keys are deleted too. The history is kept.`,
		Example: `  quota-admin delete payments/charge --reason "contract ended" --yes
  quota-admin delete payments/charge --dry-run`,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !dryRun && !isTerminal(a.stdin) {
				return usageError(cmd, "there is no terminal to ask at; give --yes to delete %s", args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`, for the history")
	revision := anyRevision
	a.revisionFlag(cmd, &revision, 1, "delete the policy only if it has revision `N`")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation; required without a terminal")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the share that each instance would lose, and delete nothing")
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		if dryRun {
			return a.wouldDelete(ctx, etcd, args[0], revision)
		}
		if !yes { // what it has shown is deleted: a policy that changes meanwhile stays
			old, err := etcd.Get(ctx, args[0])
			if err == nil {
				err = conflict(old, revision)
			}
			if err != nil {
				return err
			}
			if revision = old.Revision; !a.confirm("Delete the policy of " + spelled(old) + "? Its instances will issue nothing.") {
				return errors.New("not deleted: not confirmed")
			}
		}
		remove := etcd.Delete
		if revision != anyRevision {
			remove = func(ctx context.Context, provider, reason string) (admin.Stored, error) {
				return etcd.DeleteIf(ctx, provider, reason, revision)
			}
		}
		old, err := remove(ctx, args[0], reason)
		if err != nil {
			return err
		}
		return a.emit(editResult{Provider: old.Provider, Old: toJSON(old)}, func(w io.Writer) { fmt.Fprintln(w, format.Clean("deleted "+spelled(old))) })
	})
}

func (a *app) wouldDelete(ctx context.Context, etcd connection, provider string, revision int64) error {
	old, err := etcd.Get(ctx, provider)
	if err == nil {
		err = conflict(old, revision)
	}
	if err != nil {
		return err
	}
	f, err := feed.Inside(etcd.Client).Fleet(ctx, provider)
	if err != nil {
		return err
	}
	r := editResult{Provider: old.Provider, Old: toJSON(old)}
	if old.Problem == nil {
		r.DryRun = compareShares(&f, old.Policy, time.Now())
		r.DryRun.NewTotal, r.DryRun.Keys = nil, nil
		for i := range r.DryRun.Instances {
			r.DryRun.Instances[i].New = nil
		}
	}
	err = a.emit(r, func(w io.Writer) {
		fmt.Fprintln(w, format.Clean("would delete "+spelled(old)))
		if r.DryRun != nil {
			r.DryRun.table(w)
		}
	})
	a.note("dry run: nothing was written")
	return err
}

func spelled(s admin.Stored) string {
	limits := "unreadable limits"
	if p := policyIn(s); p != nil {
		limits = change.Limits(p)
	}
	return fmt.Sprintf("%s (%s, revision %d)", s.Provider, limits, s.Revision)
}

// confirm asks on the terminal. Everything but a yes is a no.
func (a *app) confirm(question string) bool {
	fmt.Fprint(a.stderr, format.Clean(question)+" [y/N] ")
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
