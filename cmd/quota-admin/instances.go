package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/status"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// instanceJSON is a live instance as -o json shows it.
type instanceJSON struct {
	Incarnation string    `json:"incarnation"`
	Name        string    `json:"name"`
	Host        string    `json:"host,omitempty"`
	PID         int       `json:"pid,omitempty"`
	Version     string    `json:"version,omitempty"`
	Weight      int64     `json:"weight"`
	Started     time.Time `json:"started,omitzero"`
	From        time.Time `json:"from,omitzero"`
	Until       time.Time `json:"until,omitzero"`
	// Share is of the shortest limit's window that runs now; null where no
	// policy is in force.
	Share *int64 `json:"share"`
	// Report is what the instance last told of itself, up to half a minute ago.
	Report  *quota.Report `json:"report"`
	Problem string        `json:"problem,omitempty"`
	// Explain is why it has its share: with --explain, and a policy in force.
	Explain *explanation `json:"explain,omitempty"`
}

func (a *app) instancesCommand() *cobra.Command {
	explain := false
	cmd := &cobra.Command{
		Use:   "instances PROVIDER",
		Short: "Show who is alive: share, state, use, revision applied, clock",
		Long: `Show the live instances of a provider. SHARE is computed from the policy and the
instances in etcd, for the shortest limit's window that runs now. What stands
right of it is what the instance itself reported last, REPORT-AGE ago.

With --explain it says why each has its share: by its weight, or by what it asked
for when the level was worked out, and what it has of the part that nobody claims.`,
		Example: `  quota-admin instances payments/charge
  quota-admin instances payments/charge --explain`,
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				fleet, err := readFleet(ctx, admin, args[0], time.Now())
				if err != nil {
					return err
				}
				if explain {
					fleet.explain()
				}
				return a.emitFleet(fleet, explain)
			})
		},
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "say why each instance has its share")
	return cmd
}

func (a *app) emitFleet(f *fleet, explain bool) error {
	if f.Problem != "" {
		a.note("the policy cannot be applied: %s", f.Problem)
	}
	for _, line := range status.Troubles(&f.read) {
		a.note("%s", line)
	}
	err := a.emit(f, func(w io.Writer) {
		if len(f.Instances) == 0 {
			return
		}
		if explain {
			f.explained(w)
			return
		}
		format.Row(w, "NAME", "INCARNATION", "SHARE", "STATE", "USED", "REFUSED", "SHADOWED", "WAITING", "APPLIED", "POLICY",
			"CLOCK-ERROR", "PROOF-AGE", "REPORT-AGE", "STARTED", "FROM", "UNTIL")
		for _, i := range f.Instances {
			format.Row(w, append(append([]string{format.Name(i.Name), format.Name(i.Incarnation), number(i.Share)}, i.reported(f.now)...),
				format.When(i.Started), format.When(i.From), format.When(i.Until))...)
		}
	})
	if a.format == format.Table && err == nil {
		if len(f.Instances) > 0 {
			fmt.Fprintln(a.stdout)
		}
		fmt.Fprintln(a.stdout, f.status.Line())
	}
	return err
}

// reported are the cells that come from the instance's report.
func (i *instanceJSON) reported(now time.Time) []string {
	r := i.Report
	if r == nil {
		return []string{"-", "-", "-", "-", "-", "-", "-", "-", "-", "-"}
	}
	age := max(0, now.Sub(r.Time)).Round(time.Second)
	return []string{
		format.Show(string(r.State)), fmt.Sprint(r.Used), fmt.Sprint(r.Refused), fmt.Sprint(r.Shadowed), fmt.Sprint(r.Waiting),
		fmt.Sprint(r.Revision), fmt.Sprint(r.PolicyRevision), format.Show(r.ClockError), format.Show(r.ProofAge), age.String(),
	}
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
