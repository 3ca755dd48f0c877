package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/doctor"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/buildinfo"
	"github.com/quotient-limiter/quotient/internal/ntp"
)

type diagnosis struct {
	Healthy  bool         `json:"healthy"`
	Problems int          `json:"problems"`
	Findings doctor.Chart `json:"findings"`
}

// defaultQuotad is quotad's own default.
const defaultQuotad = "/run/quotad/quotad.sock"

func (a *app) doctorCommand() *cobra.Command {
	var servers []string
	var socket string
	cmd := &cobra.Command{
		Use:   "doctor [PROVIDER...]",
		Short: "Find problems of etcd, clocks, fleets and quotad, and their remedies",
		Long: `Check etcd (members that answer, latency, version, database, compaction, alarms),
this host's clock (by the kernel's bound, and by NTP servers with --ntp), and the
fleets of the providers named, or of all: instances that have not applied the policy,
are stale or silent, or have a clock beyond the policy's bound. They report once a
second for up to 12 s, so that a clock that is behind shows. --ntp takes up to 5 s
more, and a request to etcd or quotad up to --command-timeout. If this host runs quotad,
or --quotad names its socket, it is asked too. Each finding comes with its remedy.
Nothing is changed.

The exit code is 0 without problems, 1 with a problem, 5 if no etcd answers, and 6 if
etcd denies permission.`,
		Example: `  quota-admin doctor
  quota-admin doctor payments/charge --ntp ntp1.example.org,ntp2.example.org,ntp3.example.org`,
	}
	cmd.Flags().StringSliceVar(&servers, "ntp", nil, "NTP `servers` to measure this host's clock by, host or host:port; three tell one that lies")
	cmd.Flags().StringVar(&socket, "quotad", defaultQuotad, "`path` of quotad's socket")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ntp.CheckServers(servers); err != nil {
			return usageError(cmd, "--ntp: %v", err)
		}
		var c doctor.Chart
		c.Clock(cmd.Context(), servers)
		_, none := os.Stat(socket)
		ask := none == nil || cmd.Flags().Changed("quotad")
		quotad := func(all doctor.Policies) {
			if ask {
				c.Quotad(cmd.Context(), socket, a.etcd.CommandTimeout, all)
			}
			ask = false
		}
		err := a.connected(cmd.Context(), func(etcd connection) error {
			quotad(etcd.Client)
			if err := c.Etcd(cmd.Context(), etcd.client, a.etcd.CommandTimeout, a.permissionHint()); errors.Is(err, coordinator.ErrUnreachable) {
				return &fault{err, nil, []string{"do what stands below each problem; --endpoints or QUOTIENT_ENDPOINTS name other addresses"}}
			} else if err != nil {
				return err
			}
			known := sync.OnceValue(func() []admin.Stored { // read only if a provider has no limit
				all, _ := etcd.List(cmd.Context())
				return all
			})
			return c.Fleets(cmd.Context(), etcd.Client, a.etcd.Prefix, args, func(provider string) string { return nearest(provider, known()) })
		})
		err = a.midway(cmd.Context(), err)
		quotad(nil) // without a connection
		problems := c.Problems()
		if err == nil && problems > 0 {
			err = fmt.Errorf("%s found", format.Count(problems, "problem"))
		}
		return errors.Join(a.emit(diagnosis{problems == 0, problems, c}, c.Table), err)
	}
	return cmd
}

// midway adds to the error of an etcd that ceased to answer while doctor looked what helps, which is not doctor.
func (a *app) midway(ctx context.Context, err error) error {
	if _, told := errors.AsType[*fault](err); told || !errors.Is(err, coordinator.ErrUnreachable) {
		return err
	}
	return &fault{err, nil, append(a.etcd.Diagnose(ctx, err), "run it again when etcd answers; --endpoints or QUOTIENT_ENDPOINTS name other addresses")}
}

type buildInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the commit is not all of it
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the tool's version",
		Example: "  quota-admin version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := readBuildInfo()
			return a.emit(v, func(w io.Writer) {
				format.Row(w, "VERSION", "COMMIT", "GO", "PLATFORM")
				format.Row(w, format.Show(v.Version), format.Show(v.Commit), v.Go, v.Platform)
			})
		},
	}
}

func readBuildInfo() buildInfo {
	v := buildInfo{Version: buildinfo.Version(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return v
}
