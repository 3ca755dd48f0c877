package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// historyJSON is what history shows as JSON.
type historyJSON struct {
	Provider string       `json:"provider"`
	Changes  []recordJSON `json:"changes"` // newest first
}

// recordJSON is one change of a policy.
type recordJSON struct {
	Revision    int64         `json:"revision"`
	OldRevision int64         `json:"old_revision"` // 0: there was no policy
	Time        time.Time     `json:"time"`
	Author      string        `json:"author"`
	Reason      string        `json:"reason,omitempty"`
	Old         *quota.Policy `json:"old"` // null: there was none, or it cannot be read
	New         *quota.Policy `json:"new"` // null: deleted
	Problem     string        `json:"problem,omitempty"`
}

func (a *app) historyCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "history PROVIDER",
		Short:             "Show who changed a policy, when and why, newest first",
		Example:           "  quota-admin history payments/charge",
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				records, err := admin.History(ctx, args[0])
				if err != nil {
					return err
				}
				if len(records) == 0 {
					return notFound(args[0] + " has no history")
				}
				return a.emitHistory(args[0], records)
			})
		},
	}
}

func (a *app) emitHistory(provider string, records []coordinator.Record) error {
	data := historyJSON{Provider: provider}
	for _, r := range records {
		data.Changes = append(data.Changes, recordJSON{
			Revision: r.Revision, OldRevision: r.OldRevision, Time: r.Time,
			Author: r.Author, Reason: r.Reason, Old: r.Old, New: r.New,
		})
		if r.Problem != nil {
			data.Changes[len(data.Changes)-1].Problem = format.OneLine(r.Problem)
			a.note("%s", format.OneLine(r.Problem))
		}
	}
	return a.emit(data, func(w io.Writer) {
		format.Row(w, "REVISION", "TIME", "AUTHOR", "OLD", "NEW", "ALSO", "REASON")
		for _, r := range records {
			old := limitsOf(r.Old)
			if r.Old == nil && r.OldRevision != 0 {
				old = "unreadable"
			}
			set := limitsOf(r.New)
			if r.Problem != nil {
				set = "unreadable"
			}
			format.Row(w, fmt.Sprint(r.Revision), format.When(r.Time), format.Show(r.Author), old, set, also(r.Old, r.New), format.Show(r.Reason))
		}
	})
}

// also shows what a change did beside the limits.
func also(old, next *quota.Policy) string {
	if old == nil || next == nil {
		return "-"
	}
	var parts []string
	for _, d := range change.Diff(old, next) {
		switch {
		case d.Field == "limits":
		case d.Old == "":
			parts = append(parts, format.Clean(d.Field)+" "+format.Show(d.New))
		case d.New == "":
			parts = append(parts, "no "+format.Clean(d.Field))
		default:
			parts = append(parts, format.Clean(d.Field)+" "+format.Show(d.Old)+" -> "+format.Show(d.New))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, "; ")
}

// limitsOf shows a policy by its limits, and a dash for none.
func limitsOf(p *quota.Policy) string {
	if p == nil {
		return "-"
	}
	return quota.FormatLimits(p.Limits)
}
