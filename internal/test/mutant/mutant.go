// Package mutant breaks the module's code on purpose, one small patch at a time,
// and sees that its tests notice. A patch replaces text in source files by `go
// build -overlay`: the files on disk stay as they are, and production code needs
// no switches.
//
// All is the table of mutants. Each entry says which promise it breaks, by which
// edits, and which suites must catch it. TestMutantsAreCaught plays them:
//
//	go test ./internal/test/mutant -mutants . -timeout 0 -v
//
// Of its flags, -mutants and -suites are regular expressions of names. With
// -changed-since COMMIT it plays only the mutants that are new since, and those whose
// edited files or whose suites' tests differ; with -turn N it adds about ten others, so
// that all have had a turn when N has counted on by a tenth of their number. -fresh and
// -record are of histories: without the recorded seeds, and to record those found.
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

// Apply returns the texts of the files that the mutant changes, by path from the
// root. It fails if an edit's old text is not there exactly once, or if it changes
// nothing.
func (m *Mutant) Apply(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
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

// Overlay writes what Apply returns into dir, and returns the file to be given to
// `go build -overlay`.
func (m *Mutant) Overlay(root, dir string) (string, error) {
	files, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range files {
		to := filepath.Join(dir, m.Name+"-"+strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(path))] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	name := filepath.Join(dir, m.Name+".json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return name, nil
}

// BuildTest compiles a package's tests, such as "./consumer", with the mutant in
// place, into dir. It returns the path of the binary. Without edits nothing is broken.
func (m *Mutant) BuildTest(ctx context.Context, root, dir, pkg string, flags ...string) (string, error) {
	binary := filepath.Join(dir, m.Name+"-"+filepath.Base(pkg)+".test")
	args := append([]string{"test", "-c", "-vet=off", "-o", binary}, flags...)
	if len(m.Edits) > 0 {
		overlay, err := m.Overlay(root, dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, pkg)...) //nolint:gosec // the arguments are this package's own
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %s does not compile: %w\n%s", m.Name, err, out)
	}
	return binary, nil
}
