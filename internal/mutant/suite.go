package mutant

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
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
	// Caught says in a few words, for the table, what the output of a run that
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
// it, and prints a table. A mutant that none catches fails the test, and so does
// one that does not compile.
func (table Table) Hunt(t *testing.T, suites ...Suite) {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	var report bytes.Buffer
	w := tabwriter.NewWriter(&report, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\twhat is wrong\tcaught by\tafter")
	caught := 0
	for _, m := range table {
		began := time.Now()
		by, err := m.hunt(t.Context(), root, t.TempDir(), suites)
		switch {
		case err != nil:
			t.Error(err)
			by = "(does not compile)"
		case by == "":
			t.Errorf("mutant %s (%s) is not caught", m.Name, m.Wrong)
			by = "NOTHING"
		default:
			caught++
		}
		t.Logf("%s: %s", m.Name, by) // for somebody who looks on
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\n", m.Name, m.Wrong, by, time.Since(began).Round(100*time.Millisecond))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d mutants are caught\n%s", caught, len(table), report.String())
}

// hunt returns what caught the mutant, empty if nothing did.
func (m *Mutant) hunt(ctx context.Context, root, dir string, suites []Suite) (by string, err error) {
	built := map[string]string{}
	for _, s := range suites {
		binary, ok := built[s.Package]
		if !ok {
			if binary, err = m.BuildTest(ctx, root, dir, s.Package); err != nil {
				return "", err
			}
			built[s.Package] = binary
		}
		if by, err = s.catch(ctx, root, binary); by != "" || err != nil {
			break
		}
	}
	for _, binary := range built {
		if err := os.Remove(binary); err != nil {
			return "", err
		}
	}
	return by, err
}

// catch runs the suite's tests in a binary with a mutant.
func (s *Suite) catch(ctx context.Context, root, binary string) (by string, err error) {
	args := append([]string{"-test.run", s.Run, "-test.timeout", s.Limit.String(), "-test.count", "1"}, s.Args...)
	run := exec.CommandContext(ctx, binary, args...) //nolint:gosec // a program that this package has built
	run.Dir = filepath.Join(root, filepath.FromSlash(s.Package))
	out, err := run.CombinedOutput()
	if err == nil {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if _, ended := err.(*exec.ExitError); !ended { //nolint:errorlint // it is never wrapped
		return "", err
	}
	if s.Caught != nil {
		if by := s.Caught(string(out)); by != "" {
			return by, nil
		}
	}
	return failed(string(out)), nil
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

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
