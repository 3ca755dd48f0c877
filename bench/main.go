// Bench measures Quotient side by side with what people use instead, on the
// machine that it runs on, and writes RESULTS.md and charts.
//
//	go run .          everything, about ten minutes
//	go run . --quick  less of everything, less than a minute, nothing written
//
// It is a module of its own, so that what it compares with reaches nobody else.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/central"
	"github.com/quotient-limiter/quotient/bench/internal/fleet"
	"github.com/quotient-limiter/quotient/bench/internal/hotpath"
	"github.com/quotient-limiter/quotient/bench/internal/jvm"
	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/bench/internal/waiting"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// parts are the measurements.
var parts = []struct {
	name string
	run  func(context.Context, measure.Options) (*report.Section, error)
}{
	{"hotpath", hotpath.Run},
	{"waiting", waiting.Run},
	{"fleet", fleet.Run},
	{"central", central.Run},
	{"java", jvm.Run},
}

// compared are the modules whose versions belong to the results.
var compared = []string{
	"golang.org/x/time", "go.uber.org/ratelimit", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "github.com/juju/ratelimit", "github.com/failsafe-go/failsafe-go",
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10",
}

const intro = `Made by ` + "`%s`" + ` in the folder bench, in %s. Another machine, or another hour, gives other times; ratios are taken
between neighbours in the same round and carry further. RESULTS.txt has every sample, for benchstat.`

func main() {
	etcdtest.RunIfMember()
	waiting.RunIfParked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	quick := flag.Bool("quick", false, "less of everything, in less than a minute; prints the results and writes no file")
	only := flag.String("only", "", "parts to run, with commas: hotpath,waiting,fleet,central,java; prints the results and writes no file")
	flag.Parse()
	o := measure.Options{Rounds: 11, Each: 10 * time.Millisecond, Quick: *quick, Samples: measure.Samples{}, Log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}}
	if *quick {
		o.Rounds, o.Each = 3, 3*time.Millisecond
	}
	about := append(report.Machine(), report.Modules(compared...)...)
	began := time.Now()
	var sections []*report.Section
	for _, p := range parts {
		if *only != "" && !strings.Contains(","+*only+",", ","+p.name+",") {
			continue
		}
		o.Log("%s", p.name)
		runtime.GC()
		section, err := p.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		sections = append(sections, section)
	}
	command := strings.TrimSpace("go run . " + strings.Join(os.Args[1:], " "))
	text := report.Markdown(about, fmt.Sprintf(intro, command, time.Since(began).Round(time.Second)), sections)
	if *quick || *only != "" {
		fmt.Print(text)
		return nil
	}
	raw, err := os.Create("RESULTS.txt")
	if err != nil {
		return err
	}
	for _, s := range sections {
		for _, c := range s.Charts {
			if err := c.Save(filepath.Join("charts", c.File+".svg")); err != nil {
				return err
			}
		}
	}
	return errors.Join(o.Samples.Write(raw), raw.Close(), os.WriteFile("RESULTS.md", []byte(text), 0o600))
}
