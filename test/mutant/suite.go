package mutant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The suites.
const (
	histories = "histories" // a history that is led to the mutant
	small     = "small"     // every small history of the planner
	large     = "large"     // a fleet of the planner's
	traces    = "traces"    // small histories of planners and gates, by chance
	liveness  = "liveness"  // the model of the queue
	places    = "places"    // the same of calls in flight
	parts     = "parts"     // a model of escrow: limits that slide
	changes   = "changes"   // a model of escrow: windows that change
	restores  = "restores"  // a model of escrow: stores that go back
	stated    = "stated"    // a model of escrow: what a provider states

	differential = "differential" // the recorded answers of the proof's definitions
	shapes       = "shapes"       // the same of sliding windows and buckets
	loans        = "loans"        // the same of loans
)

// Suite is tests of one package that catch mutants.
type Suite struct {
	Package string   // such as "consumer"
	Test    string   // its name; those of several are joined by |
	Args    []string // of the test binary
	Led     bool     // is built without chance, and led by -led to the mutant's histories
}

// many has a property looked at so often that chance leaves no mutant out. Where it fails no file is
// left, and hardly any time is spent on a smaller failure.
var many = []string{"-rapid.checks", "1000", "-rapid.nofailfile", "-rapid.shrinktime", "1s"}

var suites = map[string]Suite{
	histories: {
		Package: "test/histories", Test: "TestHunt", Args: []string{"-more", "1000"}, Led: true,
	},
	small:    {Package: "internal/share", Test: "TestEverySmallHistory", Args: []string{"-all"}},
	large:    {Package: "internal/share", Test: "TestALargeFleetIsNeverOver", Args: []string{"-instances", "120"}},
	traces:   {Package: "internal/trace", Test: "TestSmallHistories"},
	liveness: {Package: "consumer", Test: "TestLiveness"},
	places:   {Package: "consumer", Test: "TestLivenessOfPlaces"},
	parts:    {Package: "internal/escrow", Test: "TestNoWindowOfASlidingLimitIsOver"},
	changes:  {Package: "internal/escrow", Test: "TestChangesOfWindowsCarryTheCount"},
	restores: {Package: "internal/escrow", Test: "TestMarksKeepRestoredKeysWithinTheLimit", Args: many},
	stated:   {Package: "internal/escrow", Test: "TestAStatedRestIsKept", Args: many},

	differential: {Package: "test/differential", Test: "TestRecordedAnswers"},
	shapes:       {Package: "internal/window/shape", Test: "TestShapesAsInTheProof"},
	loans:        {Package: "internal/window", Test: "TestLoansAsInTheProof"},
}

// errNoTest is a run that says nothing: it ran no test, or ended for another reason.
var errNoTest = errors.New("no test has said anything")

// build compiles the suite with sources into dir, and returns the path of the binary.
func (s Suite) build(ctx context.Context, sources Sources, root, dir string) (binary string, err error) {
	if s.Led {
		return sources.BuildExact(ctx, root, dir)
	}
	return s.binary(dir), sources.BuildTests(ctx, root, dir, []string{s.Package})
}

// binary is the path of the suite's tests in the folder that they were built into.
func (s Suite) binary(dir string) string { return filepath.Join(dir, path.Base(s.Package)+".test") }

// play runs the tests with a mutant switched on, or none if its name is empty. It returns
// what the output shows of their failure: empty if they pass. An error is a run that shows
// nothing. A run is ended at the limit, which counts as caught: a mutant may hang.
func (s Suite) play(ctx context.Context, root, binary, mutant string, limit time.Duration, more ...string) (by string, err error) {
	args := []string{"-test.run", "^(" + s.Test + ")$", "-test.failfast", "-test.timeout", limit.String()}
	play := exec.CommandContext(ctx, binary, slices.Concat(args, s.Args, more)...) //nolint:gosec // built here
	play.Env = append(os.Environ(), Switch+"="+mutant)
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

// noEnd is what caught says of a run that was ended at its limit.
const noEnd = "no end within the limit"

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
		return noEnd
	case strings.Contains(output, "panic:"), strings.Contains(output, "fatal error:"):
		return "a panic"
	}
	return ""
}
