package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/document"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) exportCommand() *cobra.Command {
	return a.needsAdmin(&cobra.Command{
		Use:   "export [PROVIDER...]",
		Short: "Write policies as a YAML document, which apply reads",
		Long: `Write the policies of all providers, or of those named, as a document for version
control: YAML, or JSON with -o json. apply reads it. The document has the current
policies with their announced changes and their defaults; author, time and reason are
in the history. A policy that cannot be read is left out, and the command then fails
after it has written the others.`,
		Example: `  quota-admin export > policies.yaml
  quota-admin export payments/charge payments/refund -o json`,
	}, func(ctx context.Context, admin *coordinator.Admin, args []string) error {
		var all []coordinator.Stored
		var err error
		if len(args) == 0 {
			if all, err = admin.List(ctx); err != nil {
				return err
			}
		}
		for _, p := range args {
			s, err := admin.Get(ctx, p)
			if err != nil {
				return err
			}
			all = append(all, s)
		}
		return a.export(all)
	})
}

func (a *app) export(all []coordinator.Stored) error {
	var policies []document.Entry
	var left []string
	for _, s := range all {
		if s.Problem != nil {
			left = append(left, fmt.Sprintf("%s at revision %d (%s)", s.Provider, s.Revision, format.OneLine(s.Problem)))
			continue
		}
		policies = append(policies, document.Entry{Provider: s.Provider, Policy: s.Policy})
	}
	f := a.format
	if f == format.Table {
		f = format.YAML
	}
	if err := f.Write(a.stdout, document.Of(policies, time.Now())); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left out, since they cannot be read: %s", strings.Join(left, "; "))
	}
	return nil
}

// apply is one run of apply, and what it shows as JSON.
type apply struct {
	Changes   []applied   `json:"changes"`
	Unchanged int         `json:"unchanged"`
	DryRun    bool        `json:"dry_run"`
	Wait      []*waitJSON `json:"wait,omitempty"`

	file, reason string
	force        bool
	maxStep      float64
	wait         time.Duration
}

type applied struct {
	Provider    string              `json:"provider"`
	OldRevision int64               `json:"old_revision"` // 0: there was none
	Revision    int64               `json:"revision"`     // 0: it was not written
	Differences []change.Difference `json:"differences"`
}

func (a *app) applyCommand() *cobra.Command {
	r := apply{Changes: []applied{}}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Set the policies of a document, all or none",
		Long: `Set the policies of a document, as export writes it, in one transaction: all of
them or none. Policies without a difference are not written, so a second apply
changes nothing. Fields that the document leaves out get their defaults, and a policy
without next loses its announced changes. Providers that are not in the document do
not change.

Unknown fields are refused. A transaction of etcd takes 128 operations, two for each
policy: 64 policies at most.`,
		Example: `  quota-admin apply -f policies.yaml --dry-run
  quota-admin apply -f policies.yaml --reason "release 42" --wait
  quota-admin export | sed 's/300000/150000/' | quota-admin apply -f -`,
	}
	flags := cmd.Flags()
	flags.StringVarP(&r.file, "file", "f", "", "the document; - is the standard input")
	flags.StringVar(&r.reason, "reason", "", "`why`, for the history; default: apply and the file's name")
	flags.BoolVar(&r.DryRun, "dry-run", false, "show the changes, and write nothing")
	a.waitFlag(cmd, &r.wait)
	a.flag(cmd, "max-step", "allow a change by `FACTOR` times up or down; default: the greatest step of each policy", func(text string) (err error) {
		r.maxStep, err = parseFactor(text)
		return err
	})
	flags.BoolVar(&r.force, "force", false, forceUsage)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if r.file == "" {
			return usageError(cmd, "-f FILE is missing; - is the standard input")
		}
		if r.reason == "" {
			r.reason = "apply " + r.file
		}
		entries, err := a.readDocument(r.file)
		if err != nil {
			return err
		}
		return a.connected(cmd.Context(), func(_ *clientv3.Client, admin *coordinator.Admin) error {
			return r.run(cmd.Context(), a, admin, entries)
		})
	}
	return cmd
}

func (a *app) readDocument(file string) ([]document.Entry, error) {
	in := a.stdin
	if file == "-" {
		file = "stdin"
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, document.Most+1))
	if err != nil {
		return nil, err
	}
	entries, err := document.Parse(file, text)
	if wrong, ok := errors.AsType[*document.Error](err); ok {
		return nil, &fault{err, nil, wrong.Problems[1:]}
	}
	return entries, err
}

// run compares, shows, writes and waits.
func (r *apply) run(ctx context.Context, a *app, admin *coordinator.Admin, entries []document.Entry) error {
	now := time.Now()
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Provider
	}
	changes, err := amend(ctx, admin, names, r.DryRun, func(i int, old coordinator.Stored) (*quota.Policy, error) {
		p, err := r.next(old, entries[i].Policy, now)
		if err != nil {
			err = refused(fmt.Errorf("%s: %w", old.Provider, err))
		}
		return p, err
	})
	if err != nil {
		return err
	}
	changes = slices.DeleteFunc(changes, func(c amended) bool { return !c.changed })
	r.Unchanged = len(entries) - len(changes)
	for _, c := range changes {
		before := policyIn(c.old)
		if before != nil {
			before = new(change.Current(*before, now))
		}
		r.Changes = append(r.Changes, applied{c.old.Provider, c.old.Revision, c.new.Revision, change.Diff(before, new(change.Current(c.new.Policy, now)))})
	}
	if a.format == format.Table {
		if err := a.emit(nil, r.table); err != nil {
			return err
		}
	}
	var waited error
	if !r.DryRun {
		waited = r.tell(ctx, a, admin, changes)
	}
	if a.format != format.Table {
		return errors.Join(a.emit(r, nil), waited)
	}
	did := "changed"
	switch {
	case r.DryRun:
		did = "would change"
	case len(r.Changes) > 0:
		did = fmt.Sprintf("changed at revision %d", r.Changes[0].Revision)
	}
	fmt.Fprintf(a.stdout, "%d %s, %d as they were\n", len(r.Changes), did, r.Unchanged)
	return waited
}

// next returns what the document makes of a policy, nil if that is the same.
func (r *apply) next(old coordinator.Stored, policy quota.Policy, now time.Time) (*quota.Policy, error) {
	was := old.Policy
	if old.Problem != nil {
		was = quota.Policy{} // it is not in force; the document replaces it
	}
	next := change.Carry(was, policy, now)
	next.Reason = r.reason
	switch {
	case old.Revision != 0 && old.Problem == nil && change.Same(was, next, now):
		return nil, nil
	case r.force:
		return &next, nil
	}
	return &next, change.CheckStep(was, next, now, r.maxStep)
}

// tell says what the changes do, and waits for all of them together.
func (r *apply) tell(ctx context.Context, a *app, admin *coordinator.Admin, changes []amended) (err error) {
	now := time.Now()
	var written []awaited
	for _, c := range changes {
		for _, line := range effects(c.old.Policy, c.new.Policy, now) {
			a.note("%s: %s", c.new.Provider, line)
		}
		written = append(written, awaited{c.new, inForce(c.old.Policy, c.new.Policy, time.Time{}, now)})
	}
	if r.wait == 0 {
		return nil
	}
	r.Wait, err = a.awaitAll(ctx, admin, r.wait, written...)
	for _, w := range r.Wait {
		if w.done && a.format == format.Table {
			fmt.Fprintf(a.stdout, "%s: %s\n", format.Show(w.Provider), w.summary(time.Now()))
		}
	}
	return err
}

func (r *apply) table(w io.Writer) {
	for _, c := range r.Changes {
		was := "new"
		if c.OldRevision != 0 {
			was = fmt.Sprintf("revision %d", c.OldRevision)
		}
		fmt.Fprintf(w, "%s: %s\n", format.Show(c.Provider), was)
		writeDiff(w, c.Differences)
	}
}
