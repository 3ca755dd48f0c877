package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/top"
	"github.com/quotient-limiter/quotient/coordinator"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var count int
	cmd := &cobra.Command{
		Use:   "top [PROVIDER]",
		Short: "Show live how many permits each instance uses",
		Long: `Show live the instances of a provider, or all providers: share, permits used and
refused each second, refusals that shadow mode let pass, waiting callers, and the
policy revision applied. While top runs, instances report once a second, those of the
first ` + fmt.Sprint(top.ObservedAtMost) + ` providers if there are more.

On a terminal q quits, < and > choose the column to sort by, r reverses the order,
/ filters, and the arrows scroll. Elsewhere top writes a table at each interval.`,
		Example: `  quota-admin top payments/charge
  quota-admin top --interval 10s | tee log
  quota-admin top payments/charge --count 1 -o json`,
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two tables")
	cmd.Flags().IntVar(&count, "count", 0, "end after so many tables; 0: never. Not for a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if interval < 100*time.Millisecond {
			return usageError(cmd, "--interval %v: must be at least 100ms", interval)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return a.connected(ctx, func(_ *clientv3.Client, admin *coordinator.Admin) error {
			source := top.NewSource(admin, strings.Join(args, ""))
			defer source.Close()
			if isTerminal(a.stdin) && isTerminal(a.stdout) && a.format == format.Table && count == 0 {
				return top.Run(ctx, source, a.stdin.(*os.File), a.stdout.(*os.File), interval)
			}
			return a.plainTop(ctx, source, interval, count)
		})
	}
	return cmd
}

// readEvery is how often top reads: reports come once a second, and rates are of
// whole windows only if none is missed.
const readEvery = time.Second

// plainTop writes a table, or a document, at each interval.
func (a *app) plainTop(ctx context.Context, source *top.Source, interval time.Duration, count int) error {
	written, due := 0, time.Now()
	for {
		s, err := source.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // ended by a signal
		case err != nil:
			return err
		}
		if !time.Now().Before(due) {
			due = due.Add(interval)
			if err := a.writeTop(s); err != nil {
				return err
			}
			if written++; written == count {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(readEvery, max(0, time.Until(due)))):
		}
	}
}

// writeTop writes one snapshot.
func (a *app) writeTop(s *top.Snapshot) error {
	if a.format != format.Table {
		return a.format.WriteLine(a.stdout, s.JSON())
	}
	err := a.emit(nil, s.Table)
	for _, n := range s.Notes() {
		a.note("%s", n)
	}
	return err
}
