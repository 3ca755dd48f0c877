// Command results measures everything on the page docs/proof/bench.md, and writes its
// tables.
//
//	go run ./results                  all parts, a quarter of an hour
//	go run ./results -short -check    whether all parts run and fill their tables; writes nothing
//	go run ./results -part keys       one part alone: prints its tables
//
// Each part is a command that prints lines of Go's benchmarks, or a run of loadgen, of whose report
// such a line is made. All output of a run is in RESULTS.txt.
// A part that fails, skips something or leaves a table empty fails the run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

var (
	short = flag.Bool("short", false, "measure little: whether it runs, not how fast it is")
	check = flag.Bool("check", false, "write nothing")
	only  = flag.String("part", "", "the `name` of the only part to play")
)

// part is a command that measures, and its short form.
type part struct {
	name        string
	line, short string
	env         string
	fleet       string // the name of the benchmark that a run of loadgen is; empty: it is no such run
}

// The benchmarks are a program that is built once; go test runs the same.
var parts = append([]part{
	{name: "calls", line: "go test -run ^$ -bench Granted|Refused -benchtime 0.2s -count 3", short: "go test -short -run ^$ -bench Granted|Refused -benchtime 1x"},
	{name: "java", line: "go test -run ^$ -bench Java -benchtime 1x", short: "go test -short -run ^$ -bench Java -benchtime 1x"},
	{name: "waiting", line: "go test -run ^$ -bench Waiting|Boundary -benchtime 1x -count 3", short: "go test -short -run ^$ -bench Waiting|Boundary -benchtime 1x"},
	{name: "parked", line: "go test -run ^$ -bench Parked -benchtime 1x -count 3", short: "go test -short -run ^$ -bench Parked -benchtime 1x", env: "GODEBUG=adaptivestackstart=0"},
	{name: "central", line: "go test -run ^$ -bench Central -benchtime 1x", short: "go test -short -run ^$ -bench Central -benchtime 1x"},
	{name: "socket", line: "go test -run ^$ -bench Socket -benchtime 1x", short: "go test -short -run ^$ -bench Socket -benchtime 1x"},
	{name: "keys", line: "go test -run ^$ -bench Keys -benchtime 0.3s", short: "go test -short -run ^$ -bench Keys -benchtime 1x"},
	fleetPart("fleet-keys", "FleetKeys", "--instances 10 --limit 10000/s --keys 200 --key-limit 50/s"),
	{name: "overshoot", line: "go run ./overshoot", short: "go run ./overshoot -n 4 -for 6s -together 8"},
}, unevenParts()...)

// uneven are the loads of the table of uneven load, as flags of loadgen. Where nobody lends, it does
// not play a load that moves.
var uneven = []struct {
	load, flags string
	alone       bool // also played where instances do not lend
}{
	{"all instances alike", "", true},
	{"by Zipf's law", " --zipf 1", true},
	{"one instance has it all", " --hot 1", true},
	{"one has it all, another one each second", " --hot 1 --move 1s", false},
}

func unevenParts() (parts []part) {
	for _, u := range uneven {
		parts = append(parts, fleetPart("uneven", "Uneven/load="+u.load+"/lend=on", unevenFlags+u.flags))
		if u.alone {
			parts = append(parts, fleetPart("uneven", "Uneven/load="+u.load+"/lend=off", unevenFlags+" --lend off"+u.flags))
		}
	}
	return parts
}

const unevenFlags = "--limit 2000/s --max-wait 0"

// fleetPart is a run of loadgen.
func fleetPart(name, benchmark, flags string) part {
	line := "go run ./cmd/loadgen --demand 1.3 --least-use 0 " + flags
	return part{name: name, fleet: benchmark, line: line + " --duration 12s", short: line + " --duration 2s"}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	flag.Parse()
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "results")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	machine := ""
	if *only == "" { // one part needs no peers that it does not have
		if machine, err = describe(ctx); err != nil {
			return err
		}
	}
	program := filepath.Join(folder, "bench.test")
	if _, err := output(ctx, "go", "test", "-c", "-o", program, "."); err != nil {
		return err
	}
	var all bytes.Buffer
	fmt.Fprintln(&all, machine)
	for _, p := range parts {
		if *only != "" && p.name != *only {
			continue
		}
		began := time.Now()
		if err := p.play(ctx, program, &all); err != nil {
			return fmt.Errorf("part %s: %w", p.name, err)
		}
		fmt.Fprintf(os.Stderr, "part %s: %v\n", p.name, time.Since(began).Round(time.Second))
	}
	r, err := read(all.Bytes())
	if err != nil {
		return err
	}
	if *only != "" {
		for _, t := range tables {
			if text, err := t.render(r); err == nil {
				fmt.Printf("%s\n", text)
			}
		}
		return nil
	}
	written, err := fill(r, machine)
	if err != nil || *check {
		return err
	}
	if err := os.WriteFile("RESULTS.txt", all.Bytes(), 0o644); err != nil { //nolint:gosec // a page
		return err
	}
	for path, page := range written {
		if err := os.WriteFile(path, page, 0o644); err != nil { //nolint:gosec // a page
			return err
		}
	}
	return drawCharts("RESULTS.txt")
}

// play runs the command of a part, and adds what it prints.
func (p *part) play(ctx context.Context, program string, to *bytes.Buffer) error {
	line := p.line
	if *short {
		line = p.short
	}
	words := strings.Fields(line)
	if words[1] == "test" {
		words = append([]string{program, "-test.v"}, words[2:]...)
		for i, w := range words {
			for _, f := range []string{"-run", "-bench", "-benchtime", "-count", "-short"} {
				if w == f {
					words[i] = "-test." + f[1:]
				}
			}
		}
	}
	if p.fleet != "" {
		words = append(words, "--quiet", "--json", "-")
	}
	fmt.Fprintln(to, "#", line)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // of the table
	if p.fleet != "" {
		cmd.Dir = ".." // the repository
	}
	cmd.Env = append(os.Environ(), p.env)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&said, os.Stderr), os.Stderr
	if p.env == "" {
		cmd.Env = os.Environ()
	}
	if err := cmd.Run(); err != nil {
		return err
	}
	if strings.Contains(said.String(), "--- SKIP") {
		return fmt.Errorf("something was skipped: %s", line)
	}
	if p.fleet != "" {
		return p.ofFleet(said.Bytes(), to)
	}
	_, err := to.Write(said.Bytes())
	return err
}

// ofFleet writes the line of a benchmark that a report of loadgen comes to.
func (p *part) ofFleet(text []byte, to io.Writer) error {
	var r load.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	s := &r.Summary
	if s.Etcd == nil {
		return errors.New("loadgen did not count the writes into etcd")
	}
	fmt.Fprintf(to, "Benchmark%s 1 %.1f used-%% %.1f most-%% %.1f etcd-writes/s", strings.ReplaceAll(p.fleet, " ", "_"),
		100*s.OneLimiter.Ratio, 100*s.MaxOverRatio, s.Etcd.PerSecond)
	if f := s.FirstLoan; f != nil {
		fmt.Fprintf(to, " %.1f first-loan-p50-ms", float64(f.P50)/1e6)
	}
	if k := s.Keys; k != nil {
		fmt.Fprintf(to, " %d windows %d over", k.Windows, k.OverLimitWindows)
	}
	_, err := fmt.Fprintln(to)
	return err
}

// output returns what a command prints.
func output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).CombinedOutput() //nolint:gosec // of this file
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}

// describe returns the commit, the date and the machine, in a sentence.
func describe(ctx context.Context) (string, error) {
	commands := [][]string{
		{"git", "describe", "--always", "--dirty", "--exclude", "*"}, {"nproc"}, {"uname", "-sr"}, {"go", "env", "GOVERSION"},
		{"java", "-version"}, {"redis-server", "--version"},
	}
	var said []string
	for _, c := range commands {
		text, err := output(ctx, c[0], c[1:]...)
		if err != nil {
			return "", err
		}
		said = append(said, text)
	}
	cpu, load := "unknown", "unknown"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, is := strings.CutPrefix(line, "model name"); is {
				cpu = strings.Trim(name, "\t :\n")
			}
		}
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(text), " ")
	}
	java := between(said[4], `"`, `"`)
	redis := between(said[5], "v=", " ")
	return fmt.Sprintf("Commit %s, %s.\n%s processors (%s), %s, %s, Java %s, Redis %s.\nThe load average was %s when the run began.",
		said[0], time.Now().UTC().Format("2006-01-02 15:04 UTC"), said[1], cpu, said[2], said[3], java, redis, load), nil
}

// between returns the text between two others.
func between(text, before, after string) string {
	_, rest, _ := strings.Cut(text, before)
	found, _, _ := strings.Cut(rest, after)
	return found
}

// pages have the tables, each of which stands once.
var pages = []string{"../docs/proof/bench.md"}

// fill returns the pages with the tables between their markers.
func fill(r *results, machine string) (written map[string][]byte, err error) {
	written = map[string][]byte{}
	for _, path := range pages {
		if written[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	put := func(name, text string) error {
		begin, end := []byte("<!-- results: "+name+" -->\n"), []byte("<!-- end of results -->")
		for path, page := range written {
			before, rest, found := bytes.Cut(page, begin)
			if _, after, closed := bytes.Cut(rest, end); found && closed {
				written[path] = slices.Concat(before, begin, []byte("\n"+text+"\n"), end, after)
				return nil
			}
		}
		return fmt.Errorf("%s have no place for the table %q", strings.Join(pages, " and "), name)
	}
	if err := put("run", machine+"\n"); err != nil {
		return nil, err
	}
	for _, t := range tables {
		text, err := t.render(r)
		if err != nil {
			return nil, err
		}
		if err := put(t.name, text); err != nil {
			return nil, err
		}
	}
	return written, nil
}
