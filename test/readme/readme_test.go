//go:build e2e

package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/markdown"
)

// patience bounds every command: it is not what a command may take, only what
// keeps the test from waiting for ever.
const patience = 4 * time.Minute

func TestCommandsThatNeedNothing(t *testing.T) {
	t.Parallel()
	for text, how := range alone {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			check(t, text, how, "")
		})
	}
}

// The tutorial: each command works on what the ones before it left.
func TestCommandsBesideDev(t *testing.T) {
	t.Parallel()
	addresses, err := embedded.FreeAddresses(1)
	if err != nil {
		t.Fatal(err)
	}
	address := addresses[0]
	startDev(t, address)
	var done []string
	for _, c := range commands(t) {
		if how, ok := beside[c.text]; ok && !slices.Contains(done, c.text) {
			done = append(done, c.text)
			check(t, c.text, how, address)
		}
	}
}

// heldUp is what loadgen adds to its verdict where this machine was too busy to place
// every permit, as it may be while commands run at the same time.
var heldUp = regexp.MustCompile(`; [0-9,]+ permits were held up[^\n]*`)

// check runs a command and looks at what it says.
func check(t *testing.T, text string, how here, address string) {
	t.Helper()
	fill := func(s string) string { return strings.ReplaceAll(s, "%s", address) }
	run := text
	if how.instead[0] != "" {
		if !strings.Contains(run, how.instead[0]) {
			t.Errorf("%q has no %q in it", run, how.instead[0])
		}
		run = strings.ReplaceAll(run, how.instead[0], fill(how.instead[1]))
	}
	if how.with != "" {
		run += " " + fill(how.with)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := shell(ctx, run)
	if address != "" && how.instead[0] == "" {
		// As who has another etcd than dev's default says it once.
		cmd.Env = append(cmd.Environ(), "QUOTIENT_ENDPOINTS=http://"+address)
	}
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("$ %s   (%.1f s)\n%s", run, time.Since(began).Seconds(), out)
	if err != nil {
		t.Errorf("%s: %v", run, err)
	}
	for _, want := range how.says {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: does not say %q", run, want)
		}
	}
	if !how.like {
		return
	}
	var printed []string
	for line := range strings.Lines(heldUp.ReplaceAllString(string(out), "")) {
		printed = append(printed, shape(line))
	}
	for _, line := range shown(t) {
		if !slices.Contains(printed, line) {
			t.Errorf("%s: README.md shows a line such as %q, and none was printed", run, line)
		}
	}
}

// shell is a command as typed, in the project's folder, in a group of its own:
// what the terminal would end with Ctrl-C.
func shell(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", text)
	cmd.Dir = filepath.Clean(root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// sayReady is the end of what dev says when everything runs.
const sayReady = "Ctrl-C ends it"

// startDev runs dev at the address until the test ends, and returns when its fleet
// is there.
func startDev(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := shell(ctx, dev+" --listen "+address+" --dashboard 127.0.0.1:0")
	lines := make(chan string, 100)
	cmd.Stdout, cmd.Stderr = lineWriter(lines), lineWriter(lines)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		cancel()
		t.Log("dev ended:", <-ended)
	})
	late := time.After(patience)
	for ready := false; !ready; {
		select {
		case line := <-lines:
			t.Log(line)
			ready = strings.Contains(line, sayReady)
		case err := <-ended:
			ended <- err
			t.Fatalf("dev ended: %v", err)
		case <-late:
			t.Fatal("dev was never ready")
		}
	}
	go func() {
		for range lines { // read, so that dev can go on talking
		}
	}()
}

// lineWriter passes on what is written.
type lineWriter chan<- string

func (l lineWriter) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

var numbers = regexp.MustCompile(`[0-9][0-9.,:]*(ns|µs|ms|s)?\b`)

// shape is a line of output without its numbers, its spaces, and what the table
// notes of some windows: which ones a run has, depends on when it began.
func shape(line string) string {
	text := strings.Join(strings.Fields(numbers.ReplaceAllString(line, "#")), " ")
	for _, note := range []string{" settling", " not measured", " not all active"} {
		text = strings.TrimSuffix(text, note)
	}
	return text
}

// shown returns the lines of the README's first block of output, as shapes.
func shown(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, b := range markdown.Blocks(string(text)) {
		if b.Language != "" || len(list) > 0 {
			continue
		}
		for line := range strings.Lines(b.Text) {
			if s := shape(line); s != "" && s != "..." {
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		t.Fatal("README.md shows no output")
	}
	return list
}
