// Package mutant breaks the module's code on purpose, one small patch at a time,
// and sees that its tests notice. A patch replaces text in source files by `go
// build -overlay`: the files on disk stay as they are, and production code needs
// no switches.
//
// All is the table of mutants. Each entry says which promise it breaks, by which
// edits, and which suites must catch it. TestMutantsAreCaught plays them:
//
//	go test ./test/mutant -mutants . -timeout 0 -v
//
// A suite plays many histories, or compares with the proof. A mistake that a plain test catches
// needs no mutant: it would add nothing to that test, and break at each refactoring.
//
// A suite's tests are built once, with every mutant that only changes bodies of functions:
// the environment variable Switch chooses one when the tests run (switch.go). A mutant that
// changes something else, such as a constant, is built alone.
//
// Of its flags, -mutants and -suites are regular expressions of names. -fresh and -record
// are of histories: without the recorded seeds, and to record those found.
//
// It is for tests only.
package mutant

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Edit replaces Old by New in a file, whose path is relative to the module's root
// and has slashes. Old occurs in it exactly once.
type Edit struct{ File, Old, New string }

// Mutant is a mistake, as edits of the source.
type Mutant struct {
	Name  string   // one word
	Wrong string   // what the mutant does wrong, in a few words
	By    []string // the suites that catch it, each by itself
	Edits []Edit
}

// Replace returns a mutant that replaces one text, and is caught by suites.
func Replace(name, wrong, file, before, after string, by ...string) Mutant {
	return Mutant{Name: name, Wrong: wrong, By: by, Edits: []Edit{{File: file, Old: before, New: after}}}
}

// Root returns the folder of the module that the working directory is in.
func Root() (string, error) {
	file, err := exec.Command("go", "env", "GOMOD").Output()
	return filepath.Dir(string(file)), err
}

// Sources are texts of files that a build takes instead of those on disk, by path from the
// module's root.
type Sources map[string][]byte

// Apply returns the files that the mutant changes. It fails if an edit's old text is
// not there exactly once, or if it changes nothing.
func (m *Mutant) Apply(root string) (Sources, error) {
	files := Sources{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(e.File))); err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
		}
		if n := strings.Count(string(text), e.Old); n != 1 || e.Old == e.New {
			return nil, fmt.Errorf("mutant %s: %s has the text to be replaced %d times, want once and a change: %q", m.Name, e.File, n, e.Old)
		}
		files[e.File] = []byte(strings.Replace(string(text), e.Old, e.New, 1))
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("mutant %s changes nothing", m.Name)
	}
	return files, nil
}

// Overlay writes the sources into dir, and returns the file to be given to `go build
// -overlay`.
func (s Sources) Overlay(root, dir string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range s {
		to := filepath.Join(dir, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(path))] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// BuildTests compiles the tests of packages, such as "consumer", with these sources into
// dir. The binaries have the packages' last names, and end in ".test".
func (s Sources) BuildTests(ctx context.Context, root, dir string, packages []string, flags ...string) error {
	overlay, err := s.Overlay(root, dir)
	if err != nil {
		return err
	}
	args := append([]string{"test", "-c", "-vet=off", "-overlay", overlay, "-o", dir + "/"}, flags...)
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are this package's own
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
