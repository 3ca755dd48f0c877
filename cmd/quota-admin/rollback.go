package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) rollbackCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback PROVIDER REVISION",
		Short: "Set a policy as it was at a revision",
		Long: `Set a policy as it was at a revision, which history shows: all of it, as a new
change of its own. What was announced then and has come meanwhile is in force;
what lies ahead is announced again. The greatest step is not looked at: it was in
force before.`,
		Example: `  quota-admin rollback payments/charge 17 --wait
  quota-admin rollback payments/charge 17 --dry-run`,
		ValidArgsFunction: a.completeProvider,
	}
	cmd.Args = revisions(1, 1)
	e := a.addEdit(cmd, 0)
	e.lazy = true
	var revision int64
	e.make = func(ctx context.Context, admin *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, at time.Time, err error) {
		past, err := policyAt(ctx, admin, old, revision)
		if err != nil {
			return p, at, err
		}
		if past == nil {
			return p, at, fmt.Errorf("at revision %d %s had no policy: delete does that", revision, old.Provider)
		}
		p = change.Carry(old.Policy, *past, now)
		p.Author, p.Time, p.Reason = "", time.Time{}, e.reason
		if p.Reason == "" {
			p.Reason = fmt.Sprintf("rollback to revision %d", revision)
		}
		return p, at, nil
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		revision = revisionOf(args[1])
		return e.start(a, args[0])
	}
	return cmd
}

// diffJSON is what diff shows as JSON.
type diffJSON struct {
	Provider    string              `json:"provider"`
	From        int64               `json:"from_revision"`
	To          int64               `json:"to_revision"`
	Differences []change.Difference `json:"differences"`
}

func (a *app) diffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff PROVIDER REVISION [REVISION]",
		Short: "Show in what a policy differs between two revisions",
		Long: `Show in what a policy differs between two revisions, which history shows. Without
the second it is compared with what is set now.`,
		Example: `  quota-admin diff payments/charge 17 23
  quota-admin diff payments/charge 17`,
		Args:              revisions(1, 2),
		ValidArgsFunction: a.completeProvider,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
			old, err := current(ctx, admin, args[0])
			if err != nil {
				return err
			}
			d := diffJSON{Provider: args[0], From: revisionOf(args[1]), To: old.Revision, Differences: []change.Difference{}}
			from, err := policyAt(ctx, admin, old, d.From)
			if err != nil {
				return err
			}
			to := &old.Policy
			if len(args) == 3 {
				d.To = revisionOf(args[2])
				if to, err = policyAt(ctx, admin, old, d.To); err != nil {
					return err
				}
			} else if old.Revision == 0 {
				to = nil
			}
			d.Differences = append(d.Differences, change.Diff(from, to)...)
			return a.emit(d, func(w io.Writer) {
				fmt.Fprintf(w, "%s: revision %d -> %d\n", format.Show(d.Provider), d.From, d.To)
				if len(d.Differences) == 0 {
					fmt.Fprintln(w, "no difference")
				}
				writeDiff(w, d.Differences)
			})
		})
	}
	return cmd
}

// writeDiff writes a line for each difference.
func writeDiff(w io.Writer, all []change.Difference) {
	for _, d := range all {
		format.Row(w, "  "+format.Clean(d.Field)+":", format.Show(d.Old)+" -> "+format.Show(d.New))
	}
}

// current returns what is set; revision 0 is nothing.
func current(ctx context.Context, admin *coordinator.Admin, provider string) (coordinator.Stored, error) {
	f, err := admin.Fleet(ctx, provider)
	return f.Policy, err
}

// policyAt returns the policy as it was written at a revision, and nil where
// that change deleted it.
func policyAt(ctx context.Context, admin *coordinator.Admin, now coordinator.Stored, revision int64) (*quota.Policy, error) {
	if revision == now.Revision && readable(now) {
		return &now.Policy, nil
	}
	records, err := admin.History(ctx, now.Provider)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, r := range records {
		switch {
		case r.Revision == revision && r.Problem != nil:
			return nil, r.Problem
		case r.Revision == revision:
			return r.New, nil
		case r.OldRevision == revision && r.Old != nil:
			return r.Old, nil
		}
		known = append(known, strconv.FormatInt(r.Revision, 10))
	}
	if len(known) == 0 {
		return nil, notFound(now.Provider + " has no history")
	}
	return nil, notFound(fmt.Sprintf("%s was not changed at revision %d; the history goes from %s to %s",
		now.Provider, revision, known[len(known)-1], known[0]))
}

// revisions demands a provider and from least to most revisions.
func revisions(least, most int) cobra.PositionalArgs {
	names := slices.Repeat([]string{"REVISION"}, most)
	return func(cmd *cobra.Command, args []string) error {
		n := max(least, min(len(args)-1, most))
		if err := exactly(append([]string{"PROVIDER"}, names[:n]...)...)(cmd, args); err != nil {
			return err
		}
		for _, text := range args[1:] {
			if revisionOf(text) < 1 {
				return usageError(cmd, "%q is no revision; history shows them", text)
			}
		}
		return nil
	}
}

// revisionOf reads a revision; 0 is none.
func revisionOf(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
