package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
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

// part is one of the measurements.
type part struct {
	name string
	run  func(context.Context, measure.Options) (*report.Section, *measure.Samples, error)
}

var parts = []part{
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
	only := flag.String("only", "", "parts to run, with commas: "+names()+"; prints the results and writes no file")
	folder := flag.String("folder", ".", "where to write RESULTS.md, RESULTS.txt and charts")
	match := flag.String("match", "", "measure only calls of the part hotpath whose name matches this regular expression")
	rounds := flag.Int("rounds", 11, "how often every call is measured")
	flag.Parse()
	o := measure.Options{Rounds: *rounds, Each: 10 * time.Millisecond, Quick: *quick, Log: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
	}}
	if *match != "" {
		re, err := regexp.Compile(*match)
		if err != nil {
			return err
		}
		o.Match = re
	}
	if *quick {
		o.Rounds, o.Each = 3, 3*time.Millisecond
	}
	about := append(report.Machine(), report.Modules(compared...)...)
	began := time.Now()
	var sections []*report.Section
	all := measure.NewSamples()
	for _, p := range parts {
		if *only != "" && !strings.Contains(","+*only+",", ","+p.name+",") {
			continue
		}
		o.Log("%s", p.name)
		runtime.GC()
		section, samples, err := p.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		sections = append(sections, section)
		all.Merge(samples)
	}
	command := "go run . " + strings.Join(os.Args[1:], " ")
	text := fmt.Sprintf(intro, strings.TrimSpace(command), time.Since(began).Round(time.Second))
	if *quick || *match != "" || *only != "" {
		fmt.Print(report.Markdown(about, text, sections))
		return nil
	}
	if err := report.Write(*folder, about, text, sections); err != nil {
		return err
	}
	return writeRaw(filepath.Join(*folder, "RESULTS.txt"), all, about)
}

func writeRaw(path string, all *measure.Samples, about [][2]string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	config := map[string]string{}
	for _, kv := range about {
		config[strings.NewReplacer(" ", "-", "/", "-").Replace(kv[0])] = kv[1]
	}
	if err := all.Write(f, config); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

func names() string {
	var ns []string
	for _, p := range parts {
		ns = append(ns, p.name)
	}
	return strings.Join(ns, ",")
}
