// Pictures makes the pictures of README.md and docs, and the tables of real runs in
// docs/pacing.md and docs/shapes.md, from runs of the load generator:
//
//	go run -C bench ./pictures [-with COMMAND] [headline] [saturated] [bursts] [shapes] [schemes]
//	go run -C bench ./pictures -charts RESULTS.txt
//
// It names the runs as it makes them. With no argument it makes all of them, one
// after the other, in eleven minutes; a machine that does other work spoils them.
// The schemes are drawings without a run, in no time.
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
	"slices"
	"strings"

	"github.com/quotient-limiter/quotient/internal/load"
)

var parts = map[string]func(context.Context, loadgen) error{
	"headline":  headline,
	"saturated": pacing("steady", "--arrival", "steady", "--demand", "1.5"),
	"bursts":    pacing("bursts", "--arrival", "burst", "--demand", "0.5"),
	"shapes":    shapes,
	"schemes":   drawSchemes,
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
	if len(wanted) == 0 {
		wanted = []string{"schemes", "headline", "saturated", "bursts", "shapes"}
	}
	for _, name := range wanted {
		if parts[name] == nil {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	err := os.Chdir("..") // from bench to the repository
	for _, name := range wanted {
		if err == nil {
			err = parts[name](ctx, with)
		}
	}
	return err
}

// loadgen runs the load generator, with these words in front of its command.
type loadgen []string

// run returns the report of a run of 96 instances in which the limit held.
func (l loadgen) run(ctx context.Context, args ...string) (*load.Report, error) {
	args = append([]string{"--instances", "96"}, args...)
	fmt.Println("go run ./cmd/loadgen " + strings.Join(args, " "))
	line := slices.Concat(l, []string{"go", "run", "./cmd/loadgen"}, args, []string{"--least-use", "0", "--quiet", "--json", "-"})
	cmd := exec.CommandContext(ctx, line[0], line[1:]...) //nolint:gosec // what the command line names
	var said bytes.Buffer
	cmd.Stderr = &said
	text, err := cmd.Output()
	fmt.Print(said.String())
	if err != nil {
		return nil, err
	}
	report := new(load.Report)
	return report, json.Unmarshal(text, report)
}
