package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/doctor"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/ntp"
)

// diagnosis is what doctor shows as JSON.
type diagnosis struct {
	Healthy  bool         `json:"healthy"`
	Problems int          `json:"problems"`
	Findings doctor.Chart `json:"findings"`
}

func (a *app) doctorCommand() *cobra.Command {
	var servers []string
	cmd := &cobra.Command{
		Use:   "doctor [PROVIDER...]",
		Short: "Find what is wrong with etcd, clocks and fleets, and how to mend it",
		Long: `Look at etcd (who answers, how fast, version, database, compaction, alarms), at
this host's clock (against NTP servers, by --ntp, and as the kernel has it), and
at the fleets of the providers named, or of all: who has applied what, who is
stale, silent, or has a clock beyond the policy's bound. Each finding comes with
its mend. It changes nothing.

The exit code is 0 where all is well, 1 if there is a problem, 5 if no etcd
answers, 6 if it does not let the user look.`,
		Example: `  quota-admin doctor
  quota-admin doctor payments/charge --ntp ntp1.example.org,ntp2.example.org,ntp3.example.org`,
		ValidArgsFunction: a.completeProvider,
	}
	cmd.Flags().StringSliceVar(&servers, "ntp", nil, "NTP `servers` to measure this host's clock by, host or host:port; three tell one that lies")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ntp.CheckServers(servers); err != nil {
			return usageError(cmd, "--ntp: %v", err)
		}
		var c doctor.Chart
		c.Clock(cmd.Context(), servers)
		err := a.withClient(cmd.Context(), func(ctx context.Context, client *clientv3.Client) error {
			if err := c.Etcd(ctx, client, a.etcd.CommandTimeout); err != nil {
				return err
			}
			admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Prefix: a.etcd.Prefix, Timeout: a.etcd.CommandTimeout})
			if err != nil {
				return err
			}
			return c.Fleets(ctx, admin, a.etcd.Prefix, args)
		})
		if err == nil && c.Problems() > 0 {
			err = fmt.Errorf("%s found", format.Count(c.Problems(), "problem"))
		}
		if e := a.emit(diagnosis{Healthy: c.Problems() == 0, Problems: c.Problems(), Findings: c}, c.Table); e != nil {
			return e
		}
		return err
	}
	return cmd
}
