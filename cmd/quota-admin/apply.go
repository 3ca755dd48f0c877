package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/change"
	"github.com/quotient-limiter/quotient/quota"
)

// applyFlags are the flags of apply.
type applyFlags struct {
	file, reason string
	dryRun       bool
	force        bool
	maxStep      factor
	wait         waitFlag
}

func (a *app) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Set the policies of a document, all or none",
		Long: `Set the policies of a document, as export writes it, in one transaction: all of
them or none. Policies that are the same already are not written, so that a second
apply changes nothing. Fields that the document leaves out get their defaults, and
a policy without next loses what was announced; providers that it leaves out stay
as they are.

Unknown fields are refused with their line. A transaction of etcd takes 128
operations, two for each policy that changes: 64 at most.`,
		Example: `  quota-admin apply -f policies.yaml --dry-run
  quota-admin apply -f policies.yaml --reason "release 42" --wait
  quota-admin export | sed 's/300000/150000/' | quota-admin apply -f -`,
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.file, "file", "f", "", "the document; - is the standard input")
	flags.StringVar(&f.reason, "reason", "", "`why`, for the history; default: apply and the file's name")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show what would change, and write nothing")
	addWait(cmd, &f.wait)
	addStepFlags(cmd, &f.maxStep, &f.force, "let a change go as far as `FACTOR` times up or down; default: what each policy says")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.file == "" {
			return usageError(cmd, "-f FILE is missing; - is the standard input")
		}
		if f.reason == "" {
			f.reason = "apply " + f.file
		}
		entries, err := a.readDocument(f.file)
		if err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
			return a.apply(ctx, admin, entries, &f)
		})
	}
	return cmd
}

func (a *app) readDocument(file string) ([]entry, error) {
	in := a.stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	} else {
		file = "stdin"
	}
	text, err := io.ReadAll(io.LimitReader(in, maxDocument+1))
	if err != nil {
		return nil, err
	}
	return parseDocument(file, text)
}

// applyJSON is what apply shows as JSON.
type applyJSON struct {
	Changes   []appliedJSON `json:"changes"`
	Unchanged int           `json:"unchanged"`
	DryRun    bool          `json:"dry_run"`
	Wait      []*waitJSON   `json:"wait,omitempty"`
}

type appliedJSON struct {
	Provider    string              `json:"provider"`
	OldRevision int64               `json:"old_revision"` // 0: there was none
	Revision    int64               `json:"revision"`     // 0: it was not written
	Differences []change.Difference `json:"differences"`
}

// planned is one policy that is to change.
type planned struct {
	old  coordinator.Stored
	next quota.Policy
}

// apply compares, shows and writes. The write is bound to what was compared.
func (a *app) apply(ctx context.Context, admin *coordinator.Admin, entries []entry, f *applyFlags) error {
	now := time.Now()
	plan, err := planOf(ctx, admin, entries, f, now)
	if err != nil {
		return err
	}
	result := applyJSON{Changes: []appliedJSON{}, Unchanged: len(entries) - len(plan), DryRun: f.dryRun}
	for _, p := range plan {
		var old *quota.Policy
		if p.old.Revision != 0 && readable(p.old) {
			old = new(change.Current(p.old.Policy, now))
		}
		result.Changes = append(result.Changes, appliedJSON{
			Provider: p.old.Provider, OldRevision: p.old.Revision, Differences: change.Diff(old, new(change.Current(p.next, now))),
		})
	}
	if a.format == formatTable {
		if err := a.emit(nil, func(w io.Writer) { result.table(w) }); err != nil {
			return err
		}
	}
	var waited error
	if !f.dryRun && len(plan) > 0 {
		if waited, err = a.writePlan(ctx, admin, plan, f, &result); err != nil {
			return err
		}
	}
	if a.format != formatTable {
		return errors.Join(a.emit(result, nil), waited)
	}
	fmt.Fprintln(a.stdout, result.summary())
	return waited
}

// planOf returns what the document changes, checked.
func planOf(ctx context.Context, admin *coordinator.Admin, entries []entry, f *applyFlags, now time.Time) (plan []planned, err error) {
	set, err := policiesIn(ctx, admin, entries)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		old, ok := set[e.provider]
		if !ok {
			old.Provider = e.provider
		}
		was := old.Policy
		if old.Problem != nil {
			was = quota.Policy{} // it is not in force; the document replaces it
		}
		next := change.Carry(was, e.policy, now)
		next.Reason = f.reason
		if ok && old.Problem == nil && change.Same(was, next, now) {
			continue
		}
		if !f.force {
			if err := change.CheckStep(was, next, now, float64(f.maxStep)); err != nil {
				return nil, fmt.Errorf("refused: %s: %w", e.provider, err)
			}
		}
		plan = append(plan, planned{old, next})
	}
	if len(plan) > coordinator.MaxTogether {
		return nil, fmt.Errorf("refused: the document changes %d policies; one transaction of etcd takes %d (128 operations, two for each): split it",
			len(plan), coordinator.MaxTogether)
	}
	return plan, nil
}

// policiesIn reads the policies that a document names. A short document is read
// policy by policy: a role for one provider may not list all.
func policiesIn(ctx context.Context, admin *coordinator.Admin, entries []entry) (map[string]coordinator.Stored, error) {
	set := map[string]coordinator.Stored{}
	if len(entries) <= coordinator.MaxTogether {
		for _, e := range entries {
			s, err := admin.Get(ctx, e.provider)
			switch {
			case err == nil:
				set[e.provider] = s
			case !errors.Is(err, coordinator.ErrNotFound):
				return nil, err
			}
		}
		return set, nil
	}
	all, err := admin.List(ctx)
	for _, s := range all {
		set[s.Provider] = s
	}
	return set, err
}

// writePlan writes all changes and waits if asked to.
func (a *app) writePlan(ctx context.Context, admin *coordinator.Admin, plan []planned, f *applyFlags, result *applyJSON) (waited, err error) {
	var changes []coordinator.Change
	for _, p := range plan {
		changes = append(changes, coordinator.Change{Provider: p.old.Provider, Policy: p.next, IfRevision: p.old.Revision})
	}
	stored, err := admin.PutAll(ctx, changes)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for i, s := range stored {
		result.Changes[i].Revision = s.Revision
		for _, line := range effects(plan[i].old.Policy, s.Policy, now) {
			a.note("%s: %s", s.Provider, line)
		}
	}
	if !f.wait.given() {
		return nil, nil
	}
	for i, s := range stored {
		w, err := a.await(ctx, admin, s, inForce(plan[i].old.Policy, s.Policy, time.Time{}, now), f.wait.most)
		result.Wait = append(result.Wait, w)
		if err != nil {
			waited = errors.Join(waited, fmt.Errorf("%s: %w", s.Provider, err))
		} else if a.format == formatTable {
			fmt.Fprintf(a.stdout, "%s: %s\n", show(s.Provider), w.summary(time.Now()))
		}
	}
	return waited, nil
}

func (r *applyJSON) table(w io.Writer) {
	for _, c := range r.Changes {
		if c.OldRevision == 0 {
			fmt.Fprintf(w, "%s: new\n", show(c.Provider))
		} else {
			fmt.Fprintf(w, "%s: revision %d\n", show(c.Provider), c.OldRevision)
		}
		writeDiff(w, c.Differences)
	}
}

func (r *applyJSON) summary() string {
	did := "changed"
	switch {
	case r.DryRun:
		did = "would change"
	case len(r.Changes) > 0:
		did = fmt.Sprintf("changed at revision %d", r.Changes[0].Revision)
	}
	return fmt.Sprintf("%d %s, %d as they were", len(r.Changes), did, r.Unchanged)
}
