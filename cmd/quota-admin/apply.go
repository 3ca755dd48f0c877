package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/document"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
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

Unknown fields are refused. A transaction of etcd takes
128 operations, two for each policy: ` + fmt.Sprint(coordinator.MaxTogether) + ` policies at most.`,
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

func (a *app) readDocument(file string) ([]document.Entry, error) {
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
	text, err := io.ReadAll(io.LimitReader(in, document.Most+1))
	if err != nil {
		return nil, err
	}
	entries, err := document.Parse(file, text)
	if wrong, ok := errors.AsType[*document.Error](err); ok {
		return nil, &hinted{err, wrong.Problems[1:]}
	}
	return entries, err
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

// apply compares, shows and writes. The write is bound to what was compared.
func (a *app) apply(ctx context.Context, admin *coordinator.Admin, entries []document.Entry, f *applyFlags) error {
	now := time.Now()
	result := applyJSON{Changes: []appliedJSON{}, DryRun: f.dryRun}
	var changed []int // indices into entries and old
	var old []coordinator.Stored
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Provider
	}
	all, err := admin.Update(ctx, names, func(found []coordinator.Stored) ([]*quota.Policy, error) {
		old = found
		next := make([]*quota.Policy, len(found))
		for i, e := range entries {
			p, err := f.next(found[i], e.Policy, now)
			if err != nil {
				return nil, refused(fmt.Errorf("%s: %w", e.Provider, err))
			}
			if p == nil {
				result.Unchanged++
				continue
			}
			result.add(found[i], *p, now)
			changed = append(changed, i)
			if !f.dryRun {
				next[i] = p
			}
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	if a.format == format.Table {
		if err := a.emit(nil, func(w io.Writer) { result.table(w) }); err != nil {
			return err
		}
	}
	var waited error
	if !f.dryRun {
		waited = a.applied(ctx, admin, old, all, changed, f, &result)
	}
	if a.format != format.Table {
		return errors.Join(a.emit(result, nil), waited)
	}
	fmt.Fprintln(a.stdout, result.summary())
	return waited
}

// next returns what the document makes of a policy, nil if that is the same.
func (f *applyFlags) next(old coordinator.Stored, policy quota.Policy, now time.Time) (*quota.Policy, error) {
	was := old.Policy
	if old.Problem != nil {
		was = quota.Policy{} // it is not in force; the document replaces it
	}
	next := change.Carry(was, policy, now)
	next.Reason = f.reason
	if old.Revision != 0 && old.Problem == nil && change.Same(was, next, now) {
		return nil, nil
	}
	if f.force {
		return &next, nil
	}
	return &next, change.CheckStep(was, next, now, float64(f.maxStep))
}

// add notes a change.
func (r *applyJSON) add(old coordinator.Stored, next quota.Policy, now time.Time) {
	var was *quota.Policy
	if old.Revision != 0 && readable(old) {
		was = new(change.Current(old.Policy, now))
	}
	r.Changes = append(r.Changes, appliedJSON{
		Provider: old.Provider, OldRevision: old.Revision, Differences: change.Diff(was, new(change.Current(next, now))),
	})
}

// applied says what the changes do, and waits for all of them together.
func (a *app) applied(ctx context.Context, admin *coordinator.Admin, old, all []coordinator.Stored, changed []int, f *applyFlags, result *applyJSON) error {
	now := time.Now()
	for n, i := range changed {
		result.Changes[n].Revision = all[i].Revision
		for _, line := range effects(old[i].Policy, all[i].Policy, now) {
			a.note("%s: %s", all[i].Provider, line)
		}
	}
	if !f.wait.given() || len(changed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.wait.most)
	defer cancel()
	result.Wait = make([]*waitJSON, len(changed))
	late := make([]error, len(changed))
	var group sync.WaitGroup
	for n, i := range changed {
		group.Go(func() {
			result.Wait[n], late[n] = a.await(ctx, admin, all[i], inForce(old[i].Policy, all[i].Policy, time.Time{}, now), f.wait.most)
		})
	}
	group.Wait()
	for n, w := range result.Wait {
		if late[n] == nil && a.format == format.Table {
			fmt.Fprintf(a.stdout, "%s: %s\n", format.Show(w.Provider), w.summary(time.Now()))
		}
	}
	return errors.Join(late...)
}

func (r *applyJSON) table(w io.Writer) {
	for _, c := range r.Changes {
		if c.OldRevision == 0 {
			fmt.Fprintf(w, "%s: new\n", format.Show(c.Provider))
		} else {
			fmt.Fprintf(w, "%s: revision %d\n", format.Show(c.Provider), c.OldRevision)
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
