package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/top"
	"github.com/quotient-limiter/quotient/coordinator"
)

// topFlags are the flags of top.
type topFlags struct {
	interval time.Duration
	count    int
}

func (a *app) topCommand() *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top [PROVIDER]",
		Short: "Show live who uses how much",
		Long: `Show live the instances of a provider, or all providers: share, permits used and
refused in a second, refusals that shadow mode let pass, who waits, who has applied
which policy. While top runs, instances report once a second; of many providers the
first ` + fmt.Sprint(top.ObservedAtMost) + ` do.

On a terminal: q ends it, < and > choose the column to sort by, r reverses, / filters,
the arrows scroll. Elsewhere it writes a table at each interval.`,
		Example: `  quota-admin top payments/charge
  quota-admin top --interval 10s | tee log
  quota-admin top payments/charge --count 1 -o json`,
	}
	cmd.Flags().DurationVar(&f.interval, "interval", time.Second, "time between two looks")
	cmd.Flags().IntVar(&f.count, "count", 0, "end after so many tables; 0: go on. Not on a terminal")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.interval < 100*time.Millisecond {
			return usageError(cmd, "--interval %v: must be at least 100ms", f.interval)
		}
		provider := ""
		if len(args) > 0 {
			provider = args[0]
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return a.withAdmin(ctx, func(ctx context.Context, admin *coordinator.Admin) error {
			source := top.NewSource(admin, provider)
			defer source.Close()
			if keyboard, screen, ok := a.terminal(); ok && a.format == format.Table && f.count == 0 {
				return top.Run(ctx, source, keyboard, screen, f.interval)
			}
			return a.plainTop(ctx, source, &f)
		})
	}
	return cmd
}

// terminal returns the terminal, if both ends are one.
func (a *app) terminal() (keyboard, screen *os.File, ok bool) {
	keyboard, in := a.stdin.(*os.File)
	screen, out := a.stdout.(*os.File)
	return keyboard, screen, in && out && term.IsTerminal(int(keyboard.Fd())) && term.IsTerminal(int(screen.Fd()))
}

// readEvery is how often top reads: reports come once a second, and rates are of
// whole windows only if none is missed.
const readEvery = time.Second

// plainTop writes a table, or a document, at each interval.
func (a *app) plainTop(ctx context.Context, source *top.Source, f *topFlags) error {
	written, due := 0, time.Now()
	for {
		s, err := source.Read(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if !time.Now().Before(due) {
			due = due.Add(f.interval)
			if err := a.writeTop(s); err != nil {
				return err
			}
			if written++; written == f.count {
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

// unlessEnded drops the error of a read that was asked to end.
func unlessEnded(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
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
