// Command results measures everything on the pages bench/README.md and bench/overshoot/README.md,
// and writes their tables.
//
//	go run ./results                  all parts, a quarter of an hour
//	go run ./results -short -check    whether all parts run and fill their tables; writes nothing
//	go run ./results -part keys       one part alone: prints its tables
//
// Each part is a command that prints lines of Go's benchmarks. All output of a run is in RESULTS.txt.
// A part that fails, skips something or leaves a table empty fails the run.
package main

import (
	"bytes"
	"context"
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
}

// The benchmarks are a program that is built once; go test runs the same.
var parts = []part{
	{name: "calls", line: "go test -run ^$ -bench Granted|Refused -benchtime 0.2s -count 3", short: "go test -short -run ^$ -bench Granted|Refused -benchtime 1x"},
	{name: "java", line: "go test -run ^$ -bench Java -benchtime 1x", short: "go test -short -run ^$ -bench Java -benchtime 1x"},
	{name: "waiting", line: "go test -run ^$ -bench Waiting|Boundary -benchtime 1x -count 3", short: "go test -short -run ^$ -bench Waiting|Boundary -benchtime 1x"},
	{name: "parked", line: "go test -run ^$ -bench Parked -benchtime 1x -count 3", short: "go test -short -run ^$ -bench Parked -benchtime 1x", env: "GODEBUG=adaptivestackstart=0"},
	{name: "central", line: "go test -run ^$ -bench Central -benchtime 1x", short: "go test -short -run ^$ -bench Central -benchtime 1x"},
	{name: "socket", line: "go test -run ^$ -bench Socket -benchtime 1x", short: "go test -short -run ^$ -bench Socket -benchtime 1x"},
	{name: "lending", line: "go run ./lending -load busy,zipf,hot1,move1 -for 12s", short: "go run ./lending -n 5 -T 500 -load busy,move1 -for 4s"},
	{name: "alone", line: "go run ./lending -lend off -load busy,zipf,hot1,move1 -for 8s", short: "go run ./lending -n 5 -T 500 -lend off -load busy,move1 -for 4s"},
	{name: "keys", line: "go run ./keys -for 5s", short: "go run ./keys -n 5 -for 2s -keys 5000 -names 20000 -counted 50"},
	{name: "overshoot", line: "go run ./overshoot", short: "go run ./overshoot -n 4 -for 6s -together 8"},
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
	machine, err := describe(ctx)
	if err != nil {
		return err
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
	charts := exec.CommandContext(ctx, "go", "run", "./pictures", "-charts", "RESULTS.txt")
	charts.Stdout, charts.Stderr = os.Stderr, os.Stderr
	return charts.Run()
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
	fmt.Fprintln(to, "#", line)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // of the table
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
	_, err := to.Write(said.Bytes())
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
var pages = []string{"README.md", "overshoot/README.md"}

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
