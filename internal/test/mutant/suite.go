package mutant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Suites that are more than some tests of one package.
const (
	histories = "histories" // a history that is led to the mutant
	small     = "small"     // every small history of the planner
	large     = "large"     // a fleet of the planner's
	liveness  = "liveness"  // the model of the queue
)

// Suite is tests of one package that catch mutants.
type Suite struct {
	Package string   // such as "consumer"
	Run     string   // the tests, as -test.run takes them
	Args    []string // of the test binary
	Files   string   // the suite's own code: what matches it, from the root
	Led     bool     // is built without chance, and led by -led to the mutant's histories
	// Limit ends a run that takes longer, which counts as caught: a mutant may
	// hang.
	Limit time.Duration
}

var suites = map[string]Suite{
	histories: {
		Package: "internal/test/histories", Run: "^TestHunt$", Args: []string{"-more", "300"},
		Files: "internal/test/histories/*.go", Led: true, Limit: 10 * time.Minute,
	},
	small: {
		Package: "internal/share", Run: "^TestEverySmallHistory$",
		Files: "internal/share/small_test.go", Limit: 5 * time.Minute,
	},
	large: {
		Package: "internal/share", Run: "^TestALargeFleetIsNeverOver$", Args: []string{"-instances", "120"},
		Files: "internal/share/large_*.go", Limit: time.Minute,
	},
	liveness: {
		Package: "consumer", Run: "^TestLiveness$",
		Files: "consumer/liveness_*.go", Limit: time.Minute,
	},
}

// suiteOf returns the suite of a name: one of those above, or tests of a package by its
// path and their names, such as "internal/window TestA TestB". Each test must be there.
func suiteOf(root, name string) (Suite, error) {
	if s, ok := suites[name]; ok {
		return s, nil
	}
	path, tests, _ := strings.Cut(name, " ")
	names := strings.Fields(tests)
	s := Suite{Package: path, Run: "^(" + strings.Join(names, "|") + ")$", Limit: 5 * time.Minute}
	files, err := filepath.Glob(filepath.Join(root, path, "*_test.go"))
	if err != nil || len(names) == 0 {
		return s, fmt.Errorf("there is no suite %q: %w", name, err)
	}
	for _, test := range names {
		file := slices.IndexFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			return err == nil && strings.Contains(string(text), "\nfunc "+test+"(t *testing.T) {\n")
		})
		if file < 0 {
			return s, fmt.Errorf("package %s has no %s", path, test)
		}
		s.Files = path + "/" + filepath.Base(files[file])
	}
	return s, nil
}

// errNoTest is a run that says nothing: it ran no test, or ended for another reason.
var errNoTest = errors.New("no test has said anything")

// run plays the suite with a mutant in place, and returns what its output shows of the
// failure: empty if it passes.
func (s Suite) run(ctx context.Context, m *Mutant, root, dir string, more ...string) (by string, err error) {
	binary, err := s.build(ctx, m, root, dir)
	if err != nil {
		return "", err
	}
	if s.Led {
		more = append(more, "-led", m.Name)
	}
	if by, err = s.play(ctx, root, binary, more...); err != nil {
		err = fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return by, err
}

// build compiles the suite with a mutant in place into dir.
func (s Suite) build(ctx context.Context, m *Mutant, root, dir string) (binary string, err error) {
	if s.Led {
		return m.BuildExact(ctx, root, dir)
	}
	return m.BuildTest(ctx, root, dir, "./"+s.Package)
}

// play runs what build has compiled. An error is a run that shows nothing.
func (s Suite) play(ctx context.Context, root, binary string, more ...string) (by string, err error) {
	args := []string{"-test.run", s.Run, "-test.failfast", "-test.timeout", s.Limit.String()}
	play := exec.CommandContext(ctx, binary, slices.Concat(args, s.Args, more)...) //nolint:gosec // built here
	play.Dir = filepath.Join(root, filepath.FromSlash(s.Package))
	out, err := play.CombinedOutput()
	_, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil && !ended:
		return "", err
	case strings.Contains(string(out), "no tests to run"):
		return "", errNoTest
	case err == nil:
		return "", nil
	}
	if by = caught(string(out)); by == "" {
		return "", fmt.Errorf("%w: %s", errNoTest, out)
	}
	return by, nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	inHistory  = regexp.MustCompile(`caught by history \d+, seed (\d+): .*`)
	wrongLine  = regexp.MustCompile(`(?m)WRONG (\w+):`)
	seedLine   = regexp.MustCompile(`-liveness\.seed \d+:`)
)

// caught says what the output of tests that failed shows: a history, the property that is
// broken, or the tests' names.
func caught(output string) string {
	var names []string
	for _, m := range failedTest.FindAllStringSubmatch(output, -1) {
		names = append(names, m[1])
	}
	switch wrong, seed := wrongLine.FindStringSubmatch(output), seedLine.FindString(output); {
	case inHistory.MatchString(output):
		return inHistory.FindString(output)
	case wrong != nil && seed != "":
		return wrong[1] + " " + strings.TrimSuffix(seed, ":")
	case len(names) > 0:
		return strings.Join(names, " ")
	case strings.Contains(output, "test timed out"):
		return "no end within the limit"
	case strings.Contains(output, "panic:"), strings.Contains(output, "fatal error:"):
		return "a panic"
	}
	return ""
}
