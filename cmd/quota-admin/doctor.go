package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/ntp"
)

// level says how much a finding matters.
type level string

// The levels. Only problems count for the exit code.
const (
	levelOK      level = "ok"
	levelNote    level = "note"
	levelProblem level = "problem"
)

// finding is one thing that doctor has looked at.
type finding struct {
	Level   level  `json:"level"`
	Check   string `json:"check"`   // etcd, clock or fleet
	Subject string `json:"subject"` // the endpoint, the host, the provider or the instance
	Finding string `json:"finding"`
	Mend    string `json:"mend,omitempty"`
}

// diagnosis is what doctor shows as JSON.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Problems int       `json:"problems"`
	Findings []finding `json:"findings"`
}

// chart collects findings.
type chart []finding

func (c *chart) ok(check, subject, format string, args ...any) {
	*c = append(*c, finding{levelOK, check, subject, fmt.Sprintf(format, args...), ""})
}

func (c *chart) note(check, subject, mend, format string, args ...any) {
	*c = append(*c, finding{levelNote, check, subject, fmt.Sprintf(format, args...), mend})
}

func (c *chart) problem(check, subject, mend, format string, args ...any) {
	*c = append(*c, finding{levelProblem, check, subject, fmt.Sprintf(format, args...), mend})
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
		var c chart
		judgeClock(&c, measureClock(cmd.Context(), servers))
		err := a.withClient(cmd.Context(), func(ctx context.Context, client *clientv3.Client) error {
			return a.examine(ctx, &c, client, args)
		})
		if err != nil && len(c) == 0 {
			return err
		}
		if e := a.emitChart(c); e != nil {
			return e
		}
		return err
	}
	return cmd
}

// examine looks at etcd and fleets.
func (a *app) examine(ctx context.Context, c *chart, client *clientv3.Client, providers []string) error {
	facts := readEtcd(ctx, client, a.etcd.CommandTimeout)
	judgeEtcd(c, facts)
	if facts.quorum.err != nil {
		// Fleets cannot be read either: that is why, and the exit code says so.
		return facts.quorum.err
	}
	admin, err := coordinator.NewAdmin(client, coordinator.AdminOptions{Prefix: a.etcd.Prefix, Timeout: a.etcd.CommandTimeout})
	if err != nil {
		return err
	}
	if len(providers) == 0 {
		all, err := admin.List(ctx)
		if err != nil {
			return err
		}
		for _, s := range all {
			providers = append(providers, s.Provider)
		}
		if len(providers) == 0 {
			c.note("fleet", a.etcd.Prefix, "set one: quota-admin set PROVIDER LIMITS; or check --prefix", "there are no policies")
		}
	}
	for _, p := range providers {
		f, err := admin.Fleet(ctx, p)
		if err != nil {
			return err
		}
		judgeFleet(c, &f, time.Now())
	}
	if n := c.problems(); n > 0 {
		return fmt.Errorf("%s found", plural(n, "problem"))
	}
	return nil
}

func (c *chart) problems() (n int) {
	for _, f := range *c {
		if f.Level == levelProblem {
			n++
		}
	}
	return n
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (a *app) emitChart(c chart) error {
	d := diagnosis{Healthy: c.problems() == 0, Problems: c.problems(), Findings: c}
	return a.emit(d, func(w io.Writer) {
		row(w, "LEVEL", "CHECK", "SUBJECT", "FINDING")
		for _, f := range c {
			row(w, string(f.Level), f.Check, show(f.Subject), show(f.Finding))
			if f.Mend != "" {
				row(w, "", "", "", "mend: "+show(f.Mend))
			}
		}
	})
}

// brief returns an error without what its place says already.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	text := err.Error()
	if _, after, ok := strings.Cut(text, " desc = "); ok {
		text = after
	}
	return strings.TrimPrefix(text, "coordinator: ")
}
