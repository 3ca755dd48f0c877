package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/change"
	"github.com/quotient-limiter/quotient/quota"
)

// listJSON is what list shows as JSON.
type listJSON struct {
	Policies []storedJSON `json:"policies"`
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "Show the policies of all providers",
		Example: "  quota-admin list",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				all, err := admin.List(ctx)
				if err != nil {
					return err
				}
				if len(all) == 0 {
					a.note("no policies under %s", a.etcd.Prefix)
				}
				return a.emitList(all)
			})
		},
	}
}

func (a *app) emitList(all []coordinator.Stored) error {
	data := listJSON{Policies: []storedJSON{}}
	for _, s := range all {
		data.Policies = append(data.Policies, toJSON(s))
		if s.Problem != nil {
			a.note("%s: %s", s.Provider, problem(s))
		}
	}
	return a.emit(data, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		row(w, "PROVIDER", "LIMITS", "MODE", "SHARE", "OUTAGE", "SETTLE", "NEXT", "REVISION", "CHANGED", "AUTHOR")
		for _, s := range all {
			revision := fmt.Sprint(s.Revision)
			if !readable(s) {
				row(w, show(s.Provider), "invalid", "-", "-", "-", "-", "-", revision, "-", "-")
				continue
			}
			p := change.Current(s.Policy, time.Now()).WithDefaults()
			row(w, show(s.Provider), quota.FormatLimits(p.Limits), show(string(p.Mode)), show(string(p.Share)),
				show(string(p.Outage)), p.Settle.String(), nextOf(p), revision, when(p.Time), show(p.Author))
		}
	})
}

// nextOf shows the first announced change, and how many come after it.
func nextOf(p quota.Policy) string {
	switch {
	case !p.From.IsZero():
		return "begins " + exact(p.From)
	case len(p.Next) == 0:
		return "-"
	}
	text := quota.FormatLimits(p.Next[0].Limits) + " from " + exact(p.Next[0].From)
	if more := len(p.Next) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
