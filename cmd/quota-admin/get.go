package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/change"
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
	j := storedJSON{Provider: s.Provider, Revision: s.Revision, Problem: problem(s)}
	if readable(s) {
		j.Policy = &s.Policy
	}
	return j
}

// describe writes all of a policy, a line for each field.
func describe(w io.Writer, s coordinator.Stored) {
	line := func(name, value string) { row(w, name+":", value) }
	line("Provider", show(s.Provider))
	line("Revision", fmt.Sprint(s.Revision))
	if s.Problem != nil {
		line("Problem", clean(problem(s)))
	}
	if !readable(s) {
		return
	}
	p := change.Current(s.Policy, time.Now()).WithDefaults()
	line("Limits", quota.FormatLimits(p.Limits))
	if !p.From.IsZero() {
		line("From", exact(p.From))
	}
	for _, next := range p.Next {
		line("Next", quota.FormatLimits(next.Limits)+" from "+exact(next.From))
	}
	line("Share", show(sharedBy(&p)))
	line("Mode", show(string(p.Mode)))
	line("Outage", show(string(p.Outage)))
	line("Settle", p.Settle.String())
	line("Freshness", p.Freshness.String())
	line("Clock error", p.ClockError.String())
	line("Guard", quota.FormatGuard(p.Guard, p.GuardAuto))
	if line("Pacing", show(string(p.Pacing))); p.Pacing == quota.PacingAdaptive {
		line("Pacing delay", p.PacingDelay.String())
	}
	if p.Shaped() || p.WarmUp > 0 {
		line("Shape", show(shapeOf(&p)))
	}
	if p.MaxStep == 0 {
		p.MaxStep = quota.DefaultMaxStep
	}
	line("Max step", new(factor(p.MaxStep)).String())
	if len(p.Requires) > 0 {
		line("Requires", clean(strings.Join(p.Requires, ", ")))
	}
	line("Changed", when(p.Time))
	line("Author", show(p.Author))
	line("Reason", show(p.Reason))
}

// readable reports whether the value in etcd could be decoded at all.
func readable(s coordinator.Stored) bool { return len(s.Policy.Limits) > 0 }

// problem says in one line why instances do not apply the policy.
func problem(s coordinator.Stored) string {
	if s.Problem == nil {
		return ""
	}
	return oneLine(s.Problem)
}

// oneLine joins what errors.Join puts on lines of their own.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
