package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/test/mutant"
)

// The whole command finds that its instances' clock is 1.5 times too fast, which is
// built into a copy of it, though their counts hold in every window that they tell.
func TestAFleetWithAFastClockIsNotHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	fast := mutant.Mutant{Name: "FastClock", Wrong: "the monotonic clock is 1.5 times too fast", Edits: []mutant.Edit{
		{File: "internal/clock/clock.go", Old: "Mono: int64(now.Sub(c.anchor))", New: "Mono: int64(now.Sub(c.anchor)) * 3 / 2"},
		{File: "internal/clock/clock.go", Old: "return int64(time.Since(c.anchor))\n", New: "return int64(time.Since(c.anchor)) * 3 / 2\n"},
	}}
	program := broken(t, &fast)
	out, err := exec.Command(program, "--limit", "200/200ms", "--instances", "4", "--settle", "1s", "--duration", "3s", "--quiet").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitNotHeld || !strings.Contains(string(out), "NOT HELD: ") ||
		!strings.Contains(string(out), "came outside their windows by loadgen's own clock") {
		t.Errorf("%v\n%s", err, out)
	}
}

// broken builds this command with a mutant in place.
func broken(t *testing.T, m *mutant.Mutant) (program string) {
	t.Helper()
	dir := t.TempDir()
	root, err := mutant.Root()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := m.Apply(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := sources.Overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, "loadgen")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// Of a fleet in which one instance does not hear of a lower limit, the judge of traces names
// this one, another, and the views by which they went.
func TestATraceNamesWhoIsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a whole fleet for seconds")
	}
	t.Parallel()
	deaf := mutant.Replace("Deaf", "one instance ignores limits that are set later", "internal/share/history.go",
		"	at = max(at, h.changed()) //", "	if len(h.self) > 10 && h.self[:10] == \"loadgen-3.\" {\n\t\tc.Policy = nil\n\t}\n	at = max(at, h.changed()) //")
	traces := t.TempDir()
	out, err := exec.Command(broken(t, &deaf), "--limit", "800/200ms", "--instances", "8", "--settle", "1s", "--duration", "4s", "--change", "1s=400/200ms",
		"--quiet", "--trace", traces).CombinedOutput()
	var exit *exec.ExitError
	named := regexp.MustCompile(`\d+ permits, at most 400 by view (\d+); loadgen-3\.\S+ issued \d+ of 50 and went by view (\d+); loadgen-[^3]\S+ issued \d+ of 50 and went by view (\d+)\n`)
	found := named.FindStringSubmatch(string(out))
	if !errors.As(err, &exit) || exit.ExitCode() != exitNotHeld || !strings.Contains(string(out), "TRACE NOT HELD: ") ||
		found == nil || found[2] == found[3] {
		t.Errorf("%v\n%s", err, out)
	}
}
