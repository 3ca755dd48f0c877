package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// options are what the command was told.
type options struct {
	processes int           // that the instances are spread over
	perClient int           // sessions on one client of etcd
	steady    time.Duration // how long to watch while nothing happens
	changes   int           // limits to set
	ttl       time.Duration // of the leases; 0 for the default
	probe     time.Duration // between proofs of freshness; 0 for the default
	profile   string        // folder for processor profiles of the storm; empty for none
	logs      string        // folder for what each process's sessions log; empty for none
	limiters  int           // that share each session
	patience  time.Duration // bounds every wait for the fleet
	settle    time.Duration // of the policy; 0 for the default
	freshness time.Duration // of the policy; 0 for the default
	spread    time.Duration // in which they join, one after the other; 0 for all at once
}

func main() {
	etcdtest.RunIfMember()
	runIfWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	list := flag.String("instances", "10,100,300,1000,2000", "sizes of the fleet, with commas")
	flag.IntVar(&o.processes, "processes", 4, "processes that the instances are spread over")
	flag.IntVar(&o.perClient, "per-client", 1, "sessions that share a client of etcd; 1 is what a process of its own has")
	flag.DurationVar(&o.steady, "steady", 30*time.Second, "how long to watch while nothing happens")
	flag.IntVar(&o.changes, "changes", 20, "limits to set, one a second")
	flag.DurationVar(&o.ttl, "ttl", 0, "of the instances' leases; 0 is the default of sessions")
	flag.DurationVar(&o.probe, "probe", 0, "between two proofs of freshness; 0 is the default of sessions")
	flag.StringVar(&o.profile, "profile", "", "folder for a processor profile of each process, from before the first instance joins to after the last is active")
	flag.StringVar(&o.logs, "logs", "", "folder for what the sessions of each process log, doubts of their views too")
	flag.IntVar(&o.limiters, "limiters", 1, "limiters that share each session, as in a process that hands permits out to others; --instances counts sessions")
	flag.DurationVar(&o.patience, "patience", 2*time.Minute, "how long to wait until all instances are active, or have applied a limit")
	flag.DurationVar(&o.spread, "spread", 0, "time in which the instances join, one after the other; 0 for all at once")
	flag.DurationVar(&o.settle, "settle", 0, "the policy's settle time; 0 is the default of policies")
	flag.DurationVar(&o.freshness, "freshness", 0, "the policy's freshness; 0 is the default of policies")
	single := flag.Bool("constants", false, "measure instead what single calls cost etcd and a client")
	flag.Parse()
	if *single {
		rows, err := measureConstants(ctx)
		if err == nil {
			fmt.Print(report.Markdown(report.Machine(), intro("go run ./scale --constants"), constants(rows)))
		}
		return err
	}
	if o.processes < 1 || o.perClient < 1 || o.limiters < 1 || o.changes < 1 || o.steady < time.Second || o.patience < time.Second {
		return errors.New("--processes, --per-client, --limiters and --changes must be at least 1, --steady and --patience at least 1s")
	}
	results, failed := measureAll(ctx, *list, o)
	if len(results) > 0 {
		command := "go run ./scale " + strings.Join(os.Args[1:], " ")
		fmt.Print(report.Markdown(report.Machine(), intro(command), sizes(o, results)))
	}
	return failed
}

// measureAll measures every size, up to the first that fails.
func measureAll(ctx context.Context, list string, o options) (results []result, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return results, fmt.Errorf("--instances: %q is no size of a fleet", text)
		}
		r, err := measureSize(ctx, n, o)
		if err != nil {
			return results, fmt.Errorf("%d instances: %w", n, err)
		}
		results = append(results, r)
		fmt.Fprintf(os.Stderr, "%s %d instances measured\n", time.Now().Format(time.TimeOnly), n)
	}
	return results, nil
}

func intro(command string) string {
	return "Made by `" + strings.TrimSpace(command) + "` in the folder bench. One etcd, which does not sync its disk, and all instances on one machine."
}
