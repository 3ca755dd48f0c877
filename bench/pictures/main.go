// Pictures makes the pictures of README.md and docs/shapes.md, and the tables of
// real runs in docs/pacing.md and docs/shapes.md, from runs of the load generator:
//
//	go run -C bench ./pictures [-with COMMAND] [headline] [saturated] [bursts] [shapes]
//	go run -C bench ./pictures -charts RESULTS.txt
//
// It names the runs as it makes them. With no argument it makes all of them, one
// after the other, in eleven minutes; a machine that does other work spoils them.
// With -charts it draws the charts of bench/README.md, from the benchmarks' output.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/internal/load"
)

type part struct {
	name string
	make func(context.Context, *loadgen) error
}

var parts = []part{
	{"headline", headline},
	{"saturated", pacing("steady", "--arrival", "steady", "--demand", "1.5")},
	{"bursts", pacing("bursts", "--arrival", "burst", "--demand", "0.5")},
	{"shapes", shapes},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	with := flag.String("with", "", "a `command` to run the load generator with, such as chrt -r 10 where other programs run too")
	results := flag.String("charts", "", "a `file` with the output of the benchmarks, whose charts are drawn, and nothing else")
	flag.Parse()
	var err error
	if *results != "" {
		err = drawCharts(*results)
	} else {
		err = run(ctx, strings.Fields(*with), flag.Args())
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, with, wanted []string) error {
	for _, name := range wanted {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	if err := os.Chdir(".."); err != nil { // from bench to the repository
		return err
	}
	folder, err := os.MkdirTemp("", "quotient-pictures-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	l := &loadgen{with: with, program: filepath.Join(folder, "loadgen"), report: filepath.Join(folder, "report.json")}
	build := exec.CommandContext(ctx, "go", "build", "-o", l.program, "./cmd/loadgen") //nolint:gosec // into a folder of its own
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building loadgen: %w\n%s", err, out)
	}
	for _, p := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, p.name) {
			continue
		}
		if err := p.make(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

type loadgen struct {
	with            []string // in front of it
	program, report string
}

// run returns the report of a run in which the limit held.
func (l *loadgen) run(ctx context.Context, args ...string) (*load.Report, error) {
	fmt.Println("go run ./cmd/loadgen " + strings.Join(args, " "))
	var said bytes.Buffer
	line := slices.Concat(l.with, []string{l.program}, args, []string{"--quiet", "--json", l.report})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // what the command line names
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said.String())
	}
	fmt.Print(said.String())
	text, err := os.ReadFile(l.report)
	if err != nil {
		return nil, err
	}
	report := new(load.Report)
	return report, json.Unmarshal(text, report)
}
