package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// listJSON is what list shows as JSON.
type listJSON struct {
	Policies []storedJSON `json:"policies"`
}

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "Show the policies of all providers, or of those whose name begins with PREFIX",
		Example: `  quota-admin list
  quota-admin list payments/`,
		Args:              atMostOne("PREFIX"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				all, err := admin.List(ctx)
				if err != nil {
					return err
				}
				all = slices.DeleteFunc(all, func(s coordinator.Stored) bool { return !strings.HasPrefix(s.Provider, prefix) })
				if len(all) == 0 {
					a.note("no policies of providers %s* under %s", prefix, a.etcd.Prefix)
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
			a.note("%s: %s", s.Provider, problem(s.Problem))
		}
	}
	return a.emit(data, func(w io.Writer) {
		if len(all) == 0 {
			return
		}
		format.Row(w, "PROVIDER", "LIMITS", "MODE", "SHARE", "OUTAGE", "SETTLE", "NEXT", "REVISION", "CHANGED", "AUTHOR")
		for _, s := range all {
			revision := fmt.Sprint(s.Revision)
			if !readable(s) {
				format.Row(w, format.Name(s.Provider), "invalid", "-", "-", "-", "-", "-", revision, "-", "-")
				continue
			}
			p := change.Current(s.Policy, time.Now()).WithDefaults()
			format.Row(w, format.Name(s.Provider), quota.FormatLimits(p.Limits), format.Show(string(p.Mode)), format.Show(string(p.Share)),
				format.Show(string(p.Outage)), p.Settle.String(), nextOf(p), revision, format.When(p.Time), format.Name(p.Author))
		}
	})
}

// nextOf shows the first announced change, and how many come after it.
func nextOf(p quota.Policy) string {
	switch {
	case !p.From.IsZero():
		return "begins " + format.Exact(p.From)
	case len(p.Next) == 0:
		return "-"
	}
	text := quota.FormatLimits(p.Next[0].Limits) + " from " + format.Exact(p.Next[0].From)
	if more := len(p.Next) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
