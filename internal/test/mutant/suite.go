package mutant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Suite is tests of one package that shall catch mutants.
type Suite struct {
	Package string   // such as "./consumer"
	Run     string   // the tests, as -test.run takes them; empty for all
	Args    []string // of the test binary
	// Limit ends a run that takes longer, which counts as caught: a mutant may
	// hang.
	Limit time.Duration
	// Caught says in a few words what the output of a run that
	// failed shows. nil: the names of the tests that failed.
	Caught func(output string) string
}

// Table is mutants; no two have one name.
type Table []Mutant

// Replace returns a mutant that replaces one text.
func Replace(name, wrong, file, before, after string) Mutant {
	return Mutant{Name: name, Wrong: wrong, Edits: []Edit{{File: file, Old: before, New: after}}}
}

// Find returns the mutant of that name, or nil.
func (table Table) Find(name string) *Mutant {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// Matching returns the mutants whose names match a regular expression.
func (table Table) Matching(t *testing.T, name string) Table {
	t.Helper()
	r, err := regexp.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(slices.Clone(table), func(m Mutant) bool { return !r.MatchString(m.Name) })
}

// Apply sees that each mutant still applies to today's source, and that no two
// have one name.
func (table Table) Apply(t *testing.T) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for i := range table {
		m := &table[i]
		if _, err := m.Apply(root); err != nil {
			t.Error(err)
		}
		if table.Find(m.Name) != m {
			t.Errorf("two mutants are called %s", m.Name)
		}
	}
}

// Hunt runs the suites against each mutant, one after the other until one catches
// it, and logs which. A mutant that none catches fails the test, and so does one that
// does not compile.
func (table Table) Hunt(t *testing.T, suites ...Suite) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	caught := 0
	for _, m := range table {
		began := time.Now()
		by, err := m.hunt(t.Context(), root, t.TempDir(), suites)
		switch {
		case err != nil:
			t.Error(err)
		case by == "":
			t.Errorf("mutant %s (%s) is not caught", m.Name, m.Wrong)
		default:
			caught++
			t.Logf("%s (%s): caught by %s after %v", m.Name, m.Wrong, by, time.Since(began).Round(100*time.Millisecond))
		}
	}
	t.Logf("%d of %d mutants are caught", caught, len(table))
}

// hunt returns what caught the mutant, empty if nothing did.
func (m *Mutant) hunt(ctx context.Context, root, dir string, suites []Suite) (by string, err error) {
	overlay, err := m.Overlay(root, dir)
	if err != nil {
		return "", err
	}
	for _, s := range suites {
		args := []string{"test", "-vet=off", "-overlay", overlay, "-count=1", "-run", s.Run, "-timeout", s.Limit.String(), s.Package, "-args"}
		run := exec.CommandContext(ctx, "go", append(args, s.Args...)...) //nolint:gosec // the arguments are this package's own
		run.Dir = root
		out, err := run.CombinedOutput()
		_, ended := errors.AsType[*exec.ExitError](err)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return "", ctx.Err()
		case !ended || notBuilt.Match(out):
			return "", fmt.Errorf("mutant %s does not compile: %w\n%s", m.Name, err, out)
		}
		if s.Caught != nil {
			by = s.Caught(string(out))
		}
		return cmp.Or(by, failed(string(out))), nil
	}
	return "", nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	notBuilt   = regexp.MustCompile(`(?m)^FAIL\t.* \[(build|setup) failed\]$`)
)

// failed returns the names of the tests that failed.
func failed(output string) string {
	var names []string
	for _, m := range failedTest.FindAllStringSubmatch(output, -1) {
		names = append(names, m[1])
	}
	switch {
	case len(names) > 0:
		return strings.Join(names, " ")
	case strings.Contains(output, "test timed out"):
		return "no end within the limit"
	case strings.Contains(output, "panic:"):
		return "a panic"
	}
	return "the exit code"
}
