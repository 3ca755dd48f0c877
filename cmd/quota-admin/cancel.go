package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) cancelCommand() *cobra.Command {
	var when string
	cmd := &cobra.Command{
		Use:   "cancel PROVIDER",
		Short: "Cancel announced changes",
		Long: `Cancel the changes that set --at and set --for announced: all of them, or with
--at the one for TIME. What is in force stays in force, also where it was set for
a time only. A change that is cancelled less than settle + 2 clock errors ahead
may cost some permits; nothing is exceeded.`,
		Example: `  quota-admin cancel payments/charge
  quota-admin cancel payments/charge --at 2027-01-01T00:00:00Z --reason "postponed"`,
		Args:              exactly("PROVIDER"),
		ValidArgsFunction: a.completeProvider,
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&when, "at", "", "only the change that is announced for `TIME`, as get shows it")
	e := a.addEdit(cmd, 1)
	e.make = func(_ context.Context, _ *coordinator.Admin, old coordinator.Stored, now time.Time) (p quota.Policy, at time.Time, err error) {
		if err := mustExist(old); err != nil {
			return p, at, err
		}
		if when != "" {
			if at, err = parseWhen(when, now); err != nil {
				return p, at, err
			}
		}
		if p, _, err = change.Cancel(old.Policy, at, now); err != nil {
			return p, at, fmt.Errorf("%s: %w", old.Provider, err)
		}
		p.Author, p.Time, p.Reason = "", time.Time{}, e.reason
		return p, time.Time{}, nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if when != "" {
			if _, err := parseWhen(when, time.Now()); err != nil {
				return usageError(cmd, "--at %v", err)
			}
		}
		return e.start(a, args[0])
	}
	return cmd
}

// start checks the flags, connects and runs.
func (e *edit) start(a *app, provider string) error {
	if err := e.revision.check(); err != nil {
		return err
	}
	return a.withAdmin(e.cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
		return e.run(ctx, a, admin, provider)
	})
}

func mustExist(s coordinator.Stored) error {
	if s.Revision == 0 {
		return fmt.Errorf("%s: %w", s.Provider, coordinator.ErrNotFound)
	}
	return nil
}
