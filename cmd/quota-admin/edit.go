package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// edit is one change of one policy, in the steps that every such command takes:
// read, change, check, show or write, wait.
type edit struct {
	a        *app
	cmd      *cobra.Command
	revision *revisionFlag
	reason   string
	author   string // other than that of the tool
	wait     time.Duration
	dryRun   bool
	steps    bool      // look at the greatest step
	force    bool      // and go beyond it
	lazy     bool      // write nothing where nothing would change
	at       time.Time // from when on it is meant to be in force; zero: now
	// next returns the new policy; who writes it, when and why is filled in.
	next func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (quota.Policy, error)
}

// edits makes cmd a change of a policy, with the flags that all changes have.
func (a *app) edits(cmd *cobra.Command, least int64) *edit {
	e := &edit{a: a, cmd: cmd}
	cmd.Flags().StringVar(&e.reason, "reason", "", "`why`, for the history")
	what := "change the policy only if it has revision `N`"
	if least == 0 {
		what += "; 0: only if none is set"
	}
	e.revision = a.revisionFlag(cmd, least, what)
	a.waitFlag(cmd, &e.wait)
	cmd.Flags().BoolVar(&e.dryRun, "dry-run", false, "show the share that each instance would get, and write nothing")
	a.needsAdmin(cmd, e.run)
	return e
}

const forceUsage = "allow a change beyond the greatest step"

// revisionFlag is --if-revision.
type revisionFlag struct {
	given bool
	value int64
}

func (a *app) revisionFlag(cmd *cobra.Command, least int64, usage string) *revisionFlag {
	f := &revisionFlag{}
	a.flag(cmd, "if-revision", usage, func(text string) error {
		f.given, f.value = true, revisionOf(text)
		if f.value < least || f.value == 0 && text != "0" {
			return fmt.Errorf("a revision is at least %d; get shows it", least)
		}
		return nil
	})
	return f
}

// conflict returns an error if the policy is at another revision than the one
// given.
func (f *revisionFlag) conflict(s coordinator.Stored) error {
	if !f.given || f.value == s.Revision {
		return nil
	}
	return &coordinator.ConflictError{Provider: s.Provider, Have: s.Revision, Want: f.value}
}

// storedJSON is a policy as it stands in etcd, as -o json shows it.
type storedJSON struct {
	Provider string        `json:"provider"`
	Revision int64         `json:"revision"`
	Policy   *quota.Policy `json:"policy,omitempty"`
	Problem  string        `json:"problem,omitempty"` // why instances do not apply it
}

func toJSON(s coordinator.Stored) *storedJSON {
	return &storedJSON{s.Provider, s.Revision, policyIn(s), format.OneLine(s.Problem)}
}

// policyIn returns the policy, nil if none is set or it cannot be decoded at all.
func policyIn(s coordinator.Stored) *quota.Policy {
	if len(s.Policy.Limits) == 0 {
		return nil
	}
	return &s.Policy
}

// editResult is what a change shows as JSON.
type editResult struct {
	Provider string      `json:"provider"`
	Old      *storedJSON `json:"old"` // null where there was none
	New      *storedJSON `json:"new"` // revision 0: it was not written
	DryRun   *sharesJSON `json:"dry_run,omitempty"`
	Wait     *waitJSON   `json:"wait,omitempty"`
}

// amended is a policy before and after a change.
type amended struct {
	old, new coordinator.Stored // new is at revision 0 if it was not written
	changed  bool
}

// amend changes policies in one transaction, which is bound to what next was given:
// so "keeps the rest" is true of what was there. next returns nil for a policy that
// stays. A dry run writes nothing.
func amend(ctx context.Context, admin *coordinator.Admin, providers []string, dryRun bool, next func(i int, old coordinator.Stored) (*quota.Policy, error)) ([]amended, error) {
	changes := make([]amended, len(providers))
	all, err := admin.Update(ctx, providers, func(found []coordinator.Stored) ([]*quota.Policy, error) {
		policies := make([]*quota.Policy, len(found))
		for i, old := range found {
			p, err := next(i, old)
			if err != nil {
				return nil, err
			}
			changes[i] = amended{old, old, p != nil}
			if p != nil {
				changes[i].new = coordinator.Stored{Provider: old.Provider, Policy: *p}
				if !dryRun {
					policies[i] = p
				}
			}
		}
		return policies, nil
	})
	for i := range all {
		if changes[i].changed && !dryRun {
			changes[i].new = all[i]
		}
	}
	return changes, err
}

// run makes the change.
func (e *edit) run(ctx context.Context, admin *coordinator.Admin, args []string) error {
	now := time.Now()
	changes, err := amend(ctx, admin, args[:1], e.dryRun, func(_ int, old coordinator.Stored) (*quota.Policy, error) {
		p, err := e.checked(ctx, admin, old, now)
		if err == nil && e.lazy && !e.dryRun && old.Revision != 0 && change.Same(old.Policy, p, now) {
			return nil, nil
		}
		return &p, err
	})
	if err != nil {
		return err
	}
	c := changes[0]
	result := &editResult{Provider: c.old.Provider, New: toJSON(c.new)}
	if c.old.Revision != 0 {
		result.Old = toJSON(c.old)
	}
	if !c.changed {
		return e.a.emit(result, func(w io.Writer) {
			fmt.Fprintf(w, "%s: nothing to change (revision %d)\n", format.Show(c.old.Provider), c.old.Revision)
		})
	}
	return e.tell(ctx, admin, c.old, c.new, result)
}

// checked returns the new policy.
func (e *edit) checked(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, err error) {
	if err := e.revision.conflict(old); err != nil {
		return p, err
	}
	if old.Revision != 0 && policyIn(old) == nil {
		return p, fmt.Errorf("the policy of %s at revision %d cannot be read, so the rest of it cannot be kept: %s; delete it first",
			old.Provider, old.Revision, format.OneLine(old.Problem))
	}
	if p, err = e.next(ctx, admin, old, now); err != nil {
		return p, err
	}
	p.Author, p.Time, p.Reason = e.author, time.Time{}, e.reason // of this change, not of the last
	p = p.WithDefaults()
	err = p.Validate()
	if err == nil && e.steps && !e.force {
		err = change.CheckStep(old.Policy, p, now, 0)
	}
	if err != nil {
		return p, refused(err)
	}
	return p, nil
}

// tell says what the change does, or would do, and waits if asked to.
func (e *edit) tell(ctx context.Context, admin *coordinator.Admin, old, next coordinator.Stored, result *editResult) error {
	a, now := e.a, time.Now()
	from := inForce(old.Policy, next.Policy, e.at, now)
	if e.dryRun {
		f, err := admin.Fleet(ctx, old.Provider)
		if err != nil {
			return err
		}
		result.DryRun = compareShares(&f, next.Policy, from)
	}
	if a.format == format.Table {
		writeChange(a.stdout, old, next, now)
		for _, line := range effects(old.Policy, next.Policy, now) {
			a.note("%s", line)
		}
	}
	var waited error
	if e.wait > 0 && !e.dryRun {
		var all []*waitJSON
		if all, waited = a.awaitAll(ctx, admin, e.wait, awaited{next, from}); waited == nil && a.format == format.Table {
			fmt.Fprintln(a.stdout, all[0].summary(time.Now()))
		}
		result.Wait = all[0]
	}
	if a.format == format.Table && !e.dryRun {
		return waited
	}
	err := errors.Join(a.emit(result, result.table), waited)
	if e.dryRun {
		a.note("dry run: nothing was written")
	}
	return err
}

// table shows a dry run.
func (r *editResult) table(w io.Writer) { r.DryRun.table(w) }

// writeChange says what was changed: the limits in force in one line, and a line
// for each other field that differs. A revision of 0 was not written.
func writeChange(w io.Writer, old, next coordinator.Stored, now time.Time) {
	o, n := change.Current(old.Policy, now), change.Current(next.Policy, now)
	limits, written := quota.FormatLimits(n.Limits), fmt.Sprintf(" (revision %d, was %d)", next.Revision, old.Revision)
	switch before := quota.FormatLimits(o.Limits); {
	case old.Revision == 0:
		written = fmt.Sprintf(" (revision %d, new)", next.Revision)
	case before != limits:
		limits = before + " -> " + limits
	}
	if next.Revision == 0 {
		written = ""
	}
	provider := format.Show(next.Provider)
	fmt.Fprintf(w, "%s: %s%s\n", provider, limits, written)
	if old.Revision == 0 {
		return
	}
	for _, d := range change.Diff(&o, &n) {
		if d.Field != "limits" {
			fmt.Fprintf(w, "%s: %s %s -> %s\n", provider, format.Clean(strings.ReplaceAll(d.Field, "_", " ")), format.Show(d.Old), format.Show(d.New))
		}
	}
}
