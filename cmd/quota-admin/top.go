package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

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
first ` + fmt.Sprint(observedAtMost) + ` do.

On a terminal: q ends it, < and > choose the column to sort by, r reverses, / filters,
the arrows scroll. Elsewhere it writes a table at each interval.`,
		Example: `  quota-admin top payments/charge
  quota-admin top --interval 10s | tee log
  quota-admin top payments/charge --count 1 -o json`,
		Args:              upTo(1),
		ValidArgsFunction: a.completeProvider,
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
			source := newTopSource(admin, provider)
			defer source.close()
			if keyboard, screen, ok := a.terminal(); ok && a.format == formatTable && f.count == 0 {
				return runTop(ctx, source, keyboard, screen, f.interval)
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

// plainTop writes a table at each interval.
func (a *app) plainTop(ctx context.Context, source *topSource, f *topFlags) error {
	for n := 1; ; n++ {
		s, err := source.read(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		if err := a.writeTop(s); err != nil {
			return err
		}
		if n == f.count {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
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
func (a *app) writeTop(s *snapshot) error {
	rows := []map[string]string{}
	for _, row := range s.rows {
		m := map[string]string{}
		for i, c := range row {
			m[strings.ToLower(s.header[i])] = c.text
		}
		rows = append(rows, m)
	}
	data := map[string]any{"time": s.at.UTC(), "title": s.title, "notes": s.notes, "rows": rows}
	err := a.emit(data, func(w io.Writer) {
		fmt.Fprintln(w, when(s.at)+" "+clean(s.title))
		row(w, s.header...)
		for _, r := range s.rows {
			var texts []string
			for _, c := range r {
				texts = append(texts, c.text)
			}
			row(w, texts...)
		}
	})
	for _, n := range s.notes {
		a.note("%s", n)
	}
	return err
}

// What a terminal is told: another screen without a cursor, and back.
const (
	screenOn   = "\x1b[?1049h\x1b[?25l\x1b[2J"
	screenOff  = "\x1b[?25h\x1b[?1049l"
	screenHome = "\x1b[H"
	lineEnd    = "\x1b[K"
	screenRest = "\x1b[J"
)

// lookEvery is how often the size of the terminal is looked at.
const lookEvery = 200 * time.Millisecond

// reading is what came of one read.
type reading struct {
	data *snapshot
	err  error
}

// runTop shows the table until the user quits or ctx ends, and leaves the
// terminal as it was.
func runTop(ctx context.Context, source *topSource, keyboard, screen *os.File, interval time.Duration) error {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(keyboard.Fd()), before) //nolint:errcheck // nothing can be done
	fmt.Fprint(screen, screenOn)
	defer fmt.Fprint(screen, screenOff)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, readings := make(chan string), make(chan reading)
	go readKeys(ctx, keyboard, keys)
	done := make(chan struct{})
	go func() { defer close(done); keepReading(ctx, source, interval, readings) }()
	defer func() { cancel(); <-done }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var m topModel
	for width, height := 0, 0; !m.quit; {
		dirty := true
		select {
		case <-ctx.Done():
			return nil
		case sent, ok := <-keys:
			if !ok {
				return nil // the terminal is gone
			}
			for _, k := range splitKeys(sent) {
				m.key(k, m.page(height))
			}
		case r := <-readings:
			m.take(r.data, r.err)
		case <-tick.C:
			w, h, err := term.GetSize(int(screen.Fd()))
			dirty = err == nil && (w != width || h != height)
			if dirty {
				width, height = w, h
			}
		}
		if dirty && height > 0 {
			draw(screen, m.view(width, height))
		}
	}
	return nil
}

// draw writes the lines over those that are there, without a flicker.
func draw(w io.Writer, lines []string) {
	fmt.Fprint(w, screenHome+strings.Join(lines, lineEnd+"\r\n")+lineEnd+screenRest)
}

// readKeys passes on what the keyboard sends. The read itself cannot be ended: it
// goes with the process.
func readKeys(ctx context.Context, keyboard io.Reader, keys chan<- string) {
	defer close(keys)
	buffer := make([]byte, 256)
	for {
		n, err := keyboard.Read(buffer)
		if err != nil {
			return
		}
		select {
		case keys <- string(buffer[:n]):
		case <-ctx.Done():
			return
		}
	}
}

// keepReading reads at each interval.
func keepReading(ctx context.Context, source *topSource, interval time.Duration, readings chan<- reading) {
	for {
		s, err := source.read(ctx)
		select {
		case readings <- reading{s, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return
		}
	}
}
