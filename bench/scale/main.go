// Command scale measures what coordination costs as a fleet grows: real sessions
// and limiters in child processes, on a real etcd in a process of its own. For
// every size it has all instances join at once, watches them while nothing
// happens, and sets limits; it prints Markdown tables.
//
//	go run ./scale --instances 10,100,300,1000,2000
//	go run ./scale --constants
//
// Processor time is each process's own, so other programs disturb it less than
// they disturb the times on the clock. Fleet and etcd share one machine here:
// what they use together bounds the size, and a fleet that has its own machines
// is bounded by etcd's part alone.
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
	PerClient         int           // sessions on one client of etcd
	Limiters          int           // that share each session
	TTL               time.Duration // of the leases; 0 for the default
	Settle, Freshness time.Duration // of the policy; 0 for the default
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
	flag.IntVar(&o.PerClient, "per-client", 1, "sessions that share a client of etcd; 1 is what a process of its own has")
	flag.IntVar(&o.Limiters, "limiters", 1, "limiters that share each session, as in a process that hands permits out to others; --instances counts sessions")
	flag.DurationVar(&o.TTL, "ttl", 0, "of the instances' leases; 0 is the default of sessions")
	flag.DurationVar(&o.Settle, "settle", 0, "the policy's settle time; 0 is the default of policies")
	flag.DurationVar(&o.Freshness, "freshness", 0, "the policy's freshness; 0 is the default of policies")
	single := flag.Bool("constants", false, "measure instead what single calls cost etcd")
	flag.Parse()
	if o.PerClient < 1 || o.Limiters < 1 {
		return errors.New("--per-client and --limiters must be at least 1")
	}
	var sections []*report.Section
	var err error
	if *single {
		sections, err = constants(ctx)
	} else {
		sections, err = sizes(ctx, *list, o)
	}
	if len(sections) > 0 {
		fmt.Print(report.Markdown(report.Machine(), "Made by `"+strings.TrimSpace("go run ./scale "+strings.Join(os.Args[1:], " "))+
			"` in the folder bench. One etcd, which does not sync its disk, and all instances on one machine.", sections))
	}
	return err
}

// sizes measures every size, up to the first that fails, and returns the tables.
func sizes(ctx context.Context, list string, o options) (sections []*report.Section, err error) {
	var storm, steady, change [][]string
	for text := range strings.SplitSeq(list, ",") {
		n, failed := strconv.Atoi(text)
		if failed != nil || n < 1 {
			return nil, fmt.Errorf("--instances: %q is no size of a fleet", text)
		}
		r, failed := measureSize(ctx, n, o)
		if failed != nil {
			err = fmt.Errorf("%d instances: %w", n, failed)
			break
		}
		fmt.Fprintf(os.Stderr, "%s %d instances measured\n", time.Now().Format(time.TimeOnly), n)
		s := watched.Seconds()
		storm = append(storm, []string{text, seconds(r.active), seconds(r.storm.etcd.cpu), megabytes(r.storm.etcd.sent), seconds(r.storm.fleet.CPU)})
		steady = append(steady, []string{text, fmt.Sprintf("%.3f", r.steady.etcd.cpu.Seconds()/s), megabytes(r.steady.etcd.resident), megabytes(r.steady.etcd.database),
			fmt.Sprintf("%.1f kB/s", r.steady.etcd.sent/s/1e3), fmt.Sprintf("%.1f/s", r.steady.etcd.puts/s),
			fmt.Sprintf("%.3f%%", 100*r.steady.fleet.CPU.Seconds()/s/float64(n)), megabytes(float64(r.steady.fleet.Memory) / float64(n))})
		change = append(change, []string{text, millis(r.last[len(r.last)/2]), millis(r.last[len(r.last)-1])})
	}
	if storm == nil {
		return nil, err
	}
	sections = []*report.Section{{Title: "All join at once"}, {Title: "Nothing happens"}, {Title: "A limit is set"}}
	sections[0].Text("Times since the order to join, with the settle time of 3 s unless --settle says otherwise.")
	sections[0].Table([]string{"instances", "all active", "etcd: processor time", "sent", "fleet: processor time"}, storm)
	sections[1].Text("For %v: probes, leases, and a report of each instance in 30 s. No limiter is asked for permits.", watched)
	sections[1].Table([]string{"instances", "etcd: processors used", "memory", "database", "sent", "writes", "an instance: of a processor", "memory at most"}, steady)
	sections[2].Text("%d times, one a second. Time from the operator's call until the last instance's limiter has applied it.", changes)
	sections[2].Table([]string{"instances", "p50", "p99"}, change)
	return sections, err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
func millis(d time.Duration) string  { return fmt.Sprintf("%.0f ms", d.Seconds()*1e3) }
func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }
