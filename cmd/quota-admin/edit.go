package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// edit is one change of one policy, as every command that makes one goes about
// it: read, change, check, show or write, wait.
type edit struct {
	cmd      *cobra.Command
	revision *revisionFlag
	reason   string
	wait     waitFlag
	dryRun   bool
	// steps is set by commands that go to limits that nobody set before.
	steps   bool
	force   bool
	maxStep factor
	// lazy commands write nothing where nothing would change.
	lazy bool
	// make returns the new policy, and at, the instant from which on it is meant
	// to be in force if that is announced.
	make func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, at time.Time, err error)
}

// addEdit adds the flags that all changes have. own are added before them.
func (a *app) addEdit(cmd *cobra.Command, least int64) *edit {
	e := &edit{cmd: cmd}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&e.reason, "reason", "", "`why`, for the history")
	what := "change it only if the policy has revision `N`"
	if least == 0 {
		what += "; 0: only if there is none"
	}
	e.revision = addRevisionFlag(cmd, least, what)
	addWait(cmd, &e.wait)
	flags.BoolVar(&e.dryRun, "dry-run", false, "show what each instance's share would become, and write nothing")
	return e
}

// addSteps adds the flags of changes that may go too far.
func (e *edit) addSteps() {
	e.steps = true
	addStepFlags(e.cmd, &e.maxStep, &e.force, "keep in the policy, and use now, that one change goes no further than `FACTOR` times up or down; new policies: 10x")
}

func addStepFlags(cmd *cobra.Command, most *factor, force *bool, usage string) {
	cmd.Flags().Var(most, "max-step", usage)
	cmd.Flags().BoolVar(force, "force", false, "go further than the greatest step allows")
}

// factor is the value of --max-step: "10x" or "10".
type factor float64

func (f *factor) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*f), 'f', -1, 64) + "x"
}
func (f *factor) Type() string { return "factor" }
func (f *factor) Set(text string) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || !(n >= 1 && n <= float64(quota.MaxPermits)) {
		return fmt.Errorf("write a number from 1 to %d, as in 10x", quota.MaxPermits)
	}
	*f = factor(n)
	return nil
}

// editResult is what a change shows as JSON.
type editResult struct {
	Provider string      `json:"provider"`
	Old      *storedJSON `json:"old"` // null where there was none
	New      storedJSON  `json:"new"` // revision 0: it was not written
	DryRun   *sharesJSON `json:"dry_run,omitempty"`
	Wait     *waitJSON   `json:"wait,omitempty"`
}

// run makes the change. The write is bound to what was read, so that "keeps the
// rest" is true of what was there.
func (e *edit) run(ctx context.Context, a *app, admin *coordinator.Admin, provider string) error {
	now := time.Now()
	var old coordinator.Stored
	var policy quota.Policy
	var at time.Time
	var write bool
	all, err := admin.Update(ctx, []string{provider}, func(found []coordinator.Stored) (_ []*quota.Policy, err error) {
		old = found[0]
		if policy, at, err = e.next(ctx, admin, old, now); err != nil {
			return nil, err
		}
		write = !e.dryRun && !(e.lazy && old.Revision != 0 && change.Same(old.Policy, policy, now))
		if !write {
			return []*quota.Policy{nil}, nil
		}
		return []*quota.Policy{&policy}, nil
	})
	if err != nil {
		return err
	}
	result := editResult{Provider: provider, New: toJSON(coordinator.Stored{Provider: provider, Policy: policy})}
	if old.Revision != 0 {
		result.Old = new(toJSON(old))
	}
	switch {
	case e.dryRun:
		return e.show(ctx, a, admin, old, policy, at, &result)
	case !write:
		result.New = *result.Old
		return a.emit(result, func(w io.Writer) {
			fmt.Fprintf(w, "%s: nothing to change (revision %d)\n", format.Show(provider), old.Revision)
		})
	}
	return e.written(ctx, a, admin, old, all[0], at, &result)
}

// next returns the new policy, checked, and the instant that it is announced for.
func (e *edit) next(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, at time.Time, err error) {
	if err := e.revision.conflict(old.Provider, old.Revision); err != nil {
		return p, at, err
	}
	if old.Revision != 0 && !readable(old) {
		return p, at, fmt.Errorf("the policy of %s at revision %d cannot be read, so the rest of it cannot be kept: %s; delete it first",
			old.Provider, old.Revision, problem(old.Problem))
	}
	if p, at, err = e.make(ctx, admin, old, now); err != nil {
		return p, at, err
	}
	p = p.WithDefaults()
	if err := p.Validate(); err != nil {
		return p, at, refused(err)
	}
	if e.steps && !e.force {
		if err := change.CheckStep(old.Policy, p, now, float64(e.maxStep)); err != nil {
			return p, at, refused(err)
		}
	}
	return p, at, nil
}

// written says what a change does, and waits if asked to.
func (e *edit) written(ctx context.Context, a *app, admin *coordinator.Admin, old, stored coordinator.Stored, at time.Time, result *editResult) error {
	now := time.Now()
	result.New = toJSON(stored)
	if a.format == format.Table {
		writeChange(a.stdout, old, stored, now)
		for _, line := range effects(old.Policy, stored.Policy, now) {
			a.note("%s", line)
		}
	}
	var waited error
	if e.wait.given() {
		ctx, cancel := context.WithTimeout(ctx, e.wait.most)
		defer cancel()
		result.Wait, waited = a.await(ctx, admin, stored, inForce(old.Policy, stored.Policy, at, now), e.wait.most)
		if result.Wait != nil && a.format == format.Table && waited == nil {
			fmt.Fprintln(a.stdout, result.Wait.summary(time.Now()))
		}
	}
	if a.format != format.Table {
		if err := a.emit(result, nil); err != nil {
			return err
		}
	}
	return waited
}

// show is a dry run.
func (e *edit) show(ctx context.Context, a *app, admin *coordinator.Admin, old coordinator.Stored, policy quota.Policy, at time.Time, result *editResult) error {
	f, err := admin.Fleet(ctx, old.Provider)
	if err != nil {
		return err
	}
	now := time.Now()
	result.DryRun = compareShares(&f, policy, inForce(old.Policy, policy, at, now))
	if a.format != format.Table {
		return a.emit(result, nil)
	}
	writeChange(a.stdout, old, coordinator.Stored{Provider: old.Provider, Policy: policy}, now)
	for _, line := range effects(old.Policy, policy, now) {
		a.note("%s", line)
	}
	err = a.emit(nil, result.DryRun.table)
	a.note("dry run: nothing was written")
	return err
}

// inForce returns from when on a change that is made now counts in the whole
// fleet: the first instant by which every limit has begun a window, at or after
// at, or the settle time from now where that is zero; and a window's reach later
// where what grows is held back for that.
func inForce(old, policy quota.Policy, at, now time.Time) time.Time {
	if at.IsZero() {
		at = now.Add(max(old.Settle, policy.Settle))
		if policy.From.After(at) {
			at = policy.From
		}
	}
	from := at
	for _, l := range policy.LimitsAt(at.UnixNano()) {
		begins := quota.WindowAt(l.Window, at.UnixNano()-1).End()
		if policy.Shaped() || old.Shaped() {
			begins += int64(quota.ReachOf(l.Window, max(old.ClockError, policy.ClockError)))
		}
		if begins > from.UnixNano() {
			from = time.Unix(0, begins)
		}
	}
	return from.UTC()
}
