package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotient-limiter/quotient/internal/mutant"
)

// The whole command finds that its instances' clock is 1.5 times too fast, which is
// built into a copy of it, though their counts hold in every window that they tell.
func TestAFleetWithAFastClockIsNotHeld(t *testing.T) {
	t.Parallel()
	fast := mutant.Mutant{Name: "FastClock", Wrong: "the monotonic clock is 1.5 times too fast", Edits: []mutant.Edit{
		{File: "internal/clock/clock.go", Old: "Mono: int64(now.Sub(c.anchor))", New: "Mono: int64(now.Sub(c.anchor)) * 3 / 2"},
		{File: "internal/clock/clock.go", Old: "return int64(time.Since(c.anchor))\n", New: "return int64(time.Since(c.anchor)) * 3 / 2\n"},
	}}
	dir := t.TempDir()
	root, err := mutant.Root()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := fast.Overlay(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "loadgen")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program, "--limit", "200/200ms", "--instances", "4", "--settle", "1s", "--duration", "3s", "--quiet").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitNotHeld || !strings.Contains(string(out), "NOT HELD: ") ||
		!strings.Contains(string(out), "came outside their windows by loadgen's own clock") {
		t.Errorf("%v\n%s", err, out)
	}
}
