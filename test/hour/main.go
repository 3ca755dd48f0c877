// Command hour plays a fleet of processes for an hour, with three members of etcd, while a
// seed chooses what befalls them. It prints the events with the windows after each, and the
// verdicts of cmd/loadgen and of the judge of traces. Its exit status is 0 if both are good.
//
//	go run ./test/hour                        an hour, with a seed by chance
//	go run ./test/hour -for 10m -seed 7       the same events again
//	go run ./test/hour -for 10m -keep DIR     keeps the traces, for loadgen --judge DIR
//
// It needs Go and this repository, no root, and no etcd. Cut links and wrong clocks need
// root: test/faults has them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// permits is the limit that the fleet begins with, in a second.
const permits = 3000

func main() {
	duration := flag.Duration("for", time.Hour, "how long to measure")
	seed := flag.Uint64("seed", 0, "of the events; 0: one by chance")
	keep := flag.String("keep", "", "a `folder` for the traces; it must have none")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	if err := play(context.Background(), os.Stdout, *duration, *seed, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "hour:", err)
		os.Exit(1)
	}
}

// play runs the fleet and prints its table. It returns an error unless the fleet was held.
func play(ctx context.Context, out io.Writer, duration time.Duration, seed uint64, keep string) error {
	work, err := os.MkdirTemp("", "hour")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if keep == "" {
		keep = filepath.Join(work, "traces")
	}
	commit, _ := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	fmt.Fprintf(out, "go run ./test/hour -for %v -seed %d, at commit %s\n", duration, seed, strings.TrimSpace(string(commit)))

	loadgen, report := filepath.Join(work, "loadgen"), filepath.Join(work, "report.json")
	build := exec.CommandContext(ctx, "go", "build", "-o", loadgen, "./cmd/loadgen") //nolint:gosec // a folder made here
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build cmd/loadgen, in the repository's root: %w", err)
	}
	args := append(events(seed, duration),
		"--processes", "3", "--instances", "12", "--etcd-members", "3", "--limit", fmt.Sprint(permits, "/s"), "--outage", "stop",
		"--duration", duration.String(), "--seed", fmt.Sprint(seed), "--least-use", "0", "--quiet", "--trace", keep, "--json", report)
	run := exec.CommandContext(ctx, loadgen, args...) //nolint:gosec // built above
	run.Stderr = os.Stderr
	verdict, failed := run.Output()
	text, err := os.ReadFile(report)
	if err != nil {
		return errors.Join(err, failed)
	}
	if err := table(out, text); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s", verdict)
	return failed
}

// events returns the events of a seed as loadgen's flags. A member that is stopped is back after 2 to
// 10 s.
func events(seed uint64, duration time.Duration) (flags []string) {
	r := rand.New(rand.NewPCG(seed, 0))
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))).Round(time.Millisecond) }
	fault := func(at time.Duration, name, undo string) {
		back := at + 2*time.Second + upTo(8*time.Second)
		flags = append(flags, "--fault", fmt.Sprint(at, "=", name), "--fault", fmt.Sprint(back, "=", undo))
	}
	for at := 5 * time.Second; at < duration-15*time.Second; at += 15*time.Second + upTo(15*time.Second) {
		switch r.IntN(6) {
		case 0:
			flags = append(flags, "--change", fmt.Sprintf("%v=%d/s", at, permits/2+r.IntN(permits)))
		case 1:
			flags = append(flags, "--crash", at.String())
		case 2:
			fault(at, "kill-leader", "restart-all")
		case 3:
			fault(at, "pause-leader", "resume-all")
		case 4:
			fault(at, "kill-all", "restart-all")
		default:
			fault(at, "pause-all", "resume-all")
		}
	}
	return flags
}

// report is what the table needs of loadgen's report.
type report struct {
	Began  time.Time
	Events []struct {
		At   time.Time
		Text string
	}
	Windows []struct {
		Start         time.Time
		Limit, Issued int64
	}
}

// table prints a row for each event: the windows that start after it, and before the next one.
func table(out io.Writer, text []byte) error {
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	fmt.Fprint(out, "\n| at | event | windows | over | least and most issued, of the limit |\n|---:|---|---:|---:|---:|\n")
	at, what := r.Began, []string{"the whole fleet is active"}
	row := func(until time.Time) {
		n, over, least, most := 0, 0, 100.0, 0.0
		for _, w := range r.Windows {
			if w.Start.Before(at) || !w.Start.Before(until) {
				continue
			}
			part := 100 * float64(w.Issued) / float64(max(1, w.Limit))
			if n++; w.Issued > w.Limit {
				over++
			}
			least, most = min(least, part), max(most, part)
		}
		if n == 0 {
			return // the next event has its windows
		}
		fmt.Fprintf(out, "| %.0f s | %s | %d | %d | %.0f%% to %.0f%% |\n", at.Sub(r.Began).Seconds(), strings.Join(what, "; "), n, over, least, most)
		what = nil
	}
	for _, e := range r.Events {
		row(e.At)
		at, what = e.At, append(what, e.Text)
	}
	row(at.Add(time.Hour))
	fmt.Fprintln(out)
	return nil
}
