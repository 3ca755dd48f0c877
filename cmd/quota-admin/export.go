package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/document"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

func (a *app) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export [PROVIDER...]",
		Short: "Write policies as a YAML document, which apply reads",
		Long: `Write the policies of all providers, or of those named, as a document for version
control: YAML, or with -o json JSON. apply reads it. Policies are written as they
stand now, with what is announced, and with their defaults; who set them, when and
why is in the history. A policy that cannot be read is left out, and the command
then fails after it wrote the others.`,
		Example: `  quota-admin export > policies.yaml
  quota-admin export payments/charge payments/refund -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			for _, p := range args {
				if err := quota.ValidateProvider(p); err != nil {
					return usageError(cmd, "%v", err)
				}
			}
			return nil
		},
		ValidArgsFunction: a.completeProviders,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(ctx context.Context, admin *coordinator.Admin) error {
				all, err := policiesOf(ctx, admin, args)
				if err != nil {
					return err
				}
				return a.export(all)
			})
		},
	}
}

// policiesOf reads the policies of the providers, of all if none is named.
func policiesOf(ctx context.Context, admin *coordinator.Admin, providers []string) (all []coordinator.Stored, err error) {
	if len(providers) == 0 {
		return admin.List(ctx)
	}
	for _, p := range providers {
		s, err := admin.Get(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (a *app) export(all []coordinator.Stored) error {
	now := time.Now()
	var policies []document.Entry
	var left []string
	for _, s := range all {
		if s.Problem != nil {
			left = append(left, fmt.Sprintf("%s at revision %d (%s)", s.Provider, s.Revision, problem(s.Problem)))
			continue
		}
		policies = append(policies, document.Entry{Provider: s.Provider, Policy: s.Policy})
	}
	f := a.format
	if f == format.Table {
		f = format.YAML
	}
	if err := f.Write(a.stdout, document.Of(policies, now)); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("left out, since they cannot be read: %s", strings.Join(left, "; "))
	}
	return nil
}
