package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/top"
	"github.com/quotient-limiter/quotient/coordinator"
)

func (a *app) topCommand() *cobra.Command {
	var interval time.Duration
	var count int
	var by string
	cmd := &cobra.Command{
		Use:   "top [PROVIDER]",
		Short: "Show live how many permits each instance uses",
		Long:  topHelp(),
		Example: `  quota-admin top payments/charge
  quota-admin top payments/charge --by class
  quota-admin top payments/charge --by label
  quota-admin top --interval 10s | tee log
  quota-admin top payments/charge --count 1 -o json`,
	}
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "time between two tables")
	cmd.Flags().IntVar(&count, "count", 0, "number of tables after which it ends; 0: it does not end; not on a terminal")
	cmd.Flags().StringVar(&by, "by", top.ByInstance, "a row for each `"+strings.Join(top.Bys, "|")+"` of the provider")
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(top.Bys, by) {
			return usageError(cmd, "--by %s: must be one of %s", by, strings.Join(top.Bys, ", "))
		}
		if by != top.ByInstance && len(args) == 0 {
			return usageError(cmd, "--by %s: name the provider to show", by)
		}
		if interval < 100*time.Millisecond {
			return usageError(cmd, "--interval %v: must be at least 100ms", interval)
		}
		return nil
	}
	return a.onEtcd(cmd, func(ctx context.Context, etcd connection, args []string) error {
		ctx, stop := untilInterrupted(ctx)
		defer stop()
		each := func(ctx context.Context, f func(*top.Snapshot, error) bool) {
			unrated := ratesWithin
			if count == 0 {
				unrated = 0 // the next table has them
			}
			top.Each(ctx, etcd.Client, top.Subject{Provider: strings.Join(args, ""), By: by}, interval, unrated, f)
		}
		if isTerminal(a.stdin) && isTerminal(a.stdout) && a.format == format.Table && count == 0 {
			return top.Run(ctx, each)
		}
		written := 0
		var failed error
		each(ctx, func(s *top.Snapshot, err error) bool {
			if written > 0 && count == 0 && errors.Is(err, coordinator.ErrUnreachable) { // a log goes on after the outage
				a.note("%v", err)
				return true
			}
			if failed = err; err == nil {
				failed = a.writeTop(s)
				written++
			}
			return failed == nil && written != count
		})
		return failed
	})
}

func topHelp() string {
	return `Show live the instances of a provider, or all providers. While top runs, instances report
once a second, those of the first ` + fmt.Sprint(top.ObservedAtMost) + ` providers if there are more. The columns:

  NAME              by default that of the instance's host; if several have one, the end of the
                    INCARNATION, which is the process, stands behind it
  SHARE             its part of the limit, by what is in etcd now: what it gains when another one
                    is lost, or the limit is raised, counts after the settle time
  ISSUED/S          permits that it issues each second; - until it has reported since top began,
                    which takes up to 3 s
  REFUSED/S         permits that it refuses each second, but for a key's: see --by key
  SHADOWED/S        refusals that shadow mode lets pass
  WAITING           callers that wait
  BORROWED, HOSTS   permits of others that it had in the last whole window, and of how many others
  LENT, GUESTS      permits of its own that others had in that window, and how many others
  POLICY            the revision of the policy that it has applied
  CLOCK-ERROR       how far its clock may be off; unknown where its host runs no NTP
  PROOF-AGE         how long ago etcd proved what the instance knows
  REPORT-AGE        how long ago the instance told what its row says

Windows are those of the shortest limit. Permits that were borrowed and lent on are in neither
column, so the sums are the permits on loan.

With --by class the rows are the classes of calls: critical, default and sheddable. Without
it a line says when critical calls are refused.

With --by key the rows are the busiest keys of the provider, at most 50. INSTANCES are
those that have the key among their own busiest 50; REPORT-AGE is that of the oldest of
their reports. ISSUED/S and REFUSED/S are of 10 seconds or more, which ended up to 10
seconds before the report. Totals of all keys are in their metrics.

With --by label the rows are the busiest labels, at most 20: the names that callers gave
to their work. The label - has the calls without a label, other all further labels.

On a terminal q quits, < and > choose the column to sort by, r reverses the order,
/ filters, and the arrows scroll. Elsewhere top writes a table at each interval.`
}

// ratesWithin is how long top --count waits for rates: instances learn within 2 s that somebody
// looks, and two reports of each, one a second, make a rate.
const ratesWithin = 8 * time.Second

func (a *app) writeTop(s *top.Snapshot) error {
	if a.format != format.Table {
		return a.format.WriteLine(a.stdout, s.JSON())
	}
	for _, n := range s.Notes {
		a.note("%s", n)
	}
	return s.Table(a.stdout)
}
