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

// storedJSON is a policy as it stands in etcd, as -o json shows it.
type storedJSON struct {
	Provider string        `json:"provider"`
	Revision int64         `json:"revision"`
	Policy   *quota.Policy `json:"policy,omitempty"`
	Problem  string        `json:"problem,omitempty"` // why instances do not apply it
}

func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "get PROVIDER",
		Short:             "Show the policy of a provider",
		Example:           "  quota-admin get payments/charge",
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				stored, err := admin.Get(ctx, args[0])
				if err != nil {
					return err
				}
				return a.emit(toJSON(stored), func(w io.Writer) { describe(w, stored) })
			})
		},
	}
}

// toJSON gives a stored policy the names that are shown.
func toJSON(s coordinator.Stored) storedJSON {
	j := storedJSON{Provider: s.Provider, Revision: s.Revision, Problem: problem(s.Problem)}
	if readable(s) {
		j.Policy = &s.Policy
	}
	return j
}

// describe writes all of a policy, a line for each field.
func describe(w io.Writer, s coordinator.Stored) {
	line := func(name, value string) { format.Row(w, name+":", value) }
	line("Provider", format.Show(s.Provider))
	line("Revision", fmt.Sprint(s.Revision))
	if s.Problem != nil {
		line("Problem", format.Clean(problem(s.Problem)))
	}
	if !readable(s) {
		return
	}
	p := change.Current(s.Policy, time.Now()).WithDefaults()
	line("Limits", quota.FormatLimits(p.Limits))
	if !p.From.IsZero() {
		line("From", format.Exact(p.From))
	}
	for _, next := range p.Next {
		line("Next", quota.FormatLimits(next.Limits)+" from "+format.Exact(next.From))
	}
	line("Share", format.Show(sharedBy(&p)))
	line("Mode", format.Show(string(p.Mode)))
	line("Outage", format.Show(string(p.Outage)))
	line("Settle", p.Settle.String())
	line("Freshness", p.Freshness.String())
	line("Clock error", p.ClockError.String())
	line("Guard", quota.FormatGuard(p.Guard, p.GuardAuto))
	line("Pacing", format.Show(string(p.Pacing)))
	if p.Shaped() || p.WarmUp > 0 {
		line("Shape", format.Show(shapeOf(&p)))
	}
	if p.MaxStep == 0 {
		p.MaxStep = quota.DefaultMaxStep
	}
	line("Max step", new(factor(p.MaxStep)).String())
	if len(p.Requires) > 0 {
		line("Requires", format.Clean(strings.Join(p.Requires, ", ")))
	}
	line("Changed", format.When(p.Time))
	line("Author", format.Show(p.Author))
	line("Reason", format.Show(p.Reason))
}

// readable reports whether the value in etcd could be decoded at all.
func readable(s coordinator.Stored) bool { return len(s.Policy.Limits) > 0 }

// problem says in one line what is wrong; "" is nothing.
func problem(err error) string {
	if err == nil {
		return ""
	}
	return format.OneLine(err)
}
