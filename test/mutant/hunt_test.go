package mutant

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

var (
	mutantsFlag = flag.String("mutants", "", "play the mutants whose `name` matches, a regular expression")
	suitesFlag  = flag.String("suites", ".", "play the suites whose `name` matches, a regular expression")
	freshFlag   = flag.Bool("fresh", false, "hunt in histories without the seeds of "+seedsFile)
	recordFlag  = flag.Bool("record", false, "write the seeds of the histories that catch mutants to "+seedsFile)
)

// seedsFile has a mutant and the seed of a history that catches it on each line.
const seedsFile = "../histories/testdata/mutants.txt"

// Some mutants let tests wait until the limit.
func TestMain(m *testing.M) {
	await.Together(3)
	m.Run()
}

var moduleRoot = sync.OnceValues(Root)

// root returns the module's root.
func root(t *testing.T) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// TestTheTableHolds: every mutant still applies to the source, and its suites are there.
func TestTheTableHolds(t *testing.T) {
	if len(All) < 100 {
		t.Errorf("there are %d mutants", len(All))
	}
	for i := range All {
		m := &All[i]
		if _, err := m.Apply(root(t)); err != nil {
			t.Error(err)
		}
		if All.Find(m.Name) != m {
			t.Errorf("two mutants are called %s", m.Name)
		}
		if len(m.By) == 0 {
			t.Errorf("mutant %s is not hunted", m.Name)
		}
		for _, name := range m.By {
			if _, there := suites[name]; !there {
				t.Errorf("mutant %s: there is no suite %q", m.Name, name)
			}
		}
	}
	for name, s := range suites {
		if len(All.CaughtBy(name)) == 0 {
			t.Errorf("suite %s catches no mutant", name)
		}
		if !s.there(root(t)) {
			t.Errorf("suite %s: package %s has no %s", name, s.Package, s.Test)
		}
	}
}

// there says whether the suite's test is in its package.
func (s Suite) there(root string) bool {
	files, err := filepath.Glob(filepath.Join(root, s.Package, "*_test.go"))
	return err == nil && slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+s.Test+"(t *testing.T) {\n")
	})
}

// TestMutantsAreCaught plays each suite on the code as it is, which must pass, and then
// on each mutant that names it, which must fail.
func TestMutantsAreCaught(t *testing.T) {
	if *mutantsFlag == "" {
		t.Log("runs with -mutants")
		return
	}
	table, err := All.Matching(*mutantsFlag)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d mutants of %d", len(table), len(All))
	wanted := regexp.MustCompile(*suitesFlag)
	hunted := map[string]Table{}
	for _, m := range table {
		for _, name := range m.By {
			if wanted.MatchString(name) {
				hunted[name] = append(hunted[name], m)
			}
		}
	}
	if len(hunted) == 0 {
		t.Fatalf("no suite of %d mutants matches %q", len(table), *suitesFlag)
	}
	names := slices.Sorted(maps.Keys(hunted))
	var played []Suite
	for _, name := range names {
		played = append(played, suites[name])
	}
	h, err := newHunt(t, table, played)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("by", func(t *testing.T) {
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h.play(t, name, hunted[name])
			})
		}
	})
	if *recordFlag {
		h.record(t)
	}
}

// hunt is what the suites have in common.
type hunt struct {
	root, dir string   // dir has the tests with all mutants that can be switched
	alone     Table    // the others
	seeds     sync.Map // of histories that caught, by the mutant's name
}

// newHunt builds the tests of suites, with the mutants of a table that can be switched.
func newHunt(t *testing.T, table Table, played []Suite) (*hunt, error) {
	t.Helper()
	began, h := time.Now(), hunt{root: root(t), dir: t.TempDir()}
	switched, alone, err := table.Switched(h.root)
	if err != nil {
		return nil, err
	}
	h.alone = alone
	var packages []string
	for _, s := range played {
		if s.Led {
			if _, err := s.build(t.Context(), switched, h.root, h.dir); err != nil {
				return nil, err
			}
		} else if !slices.Contains(packages, s.Package) {
			packages = append(packages, s.Package)
		}
	}
	if len(packages) > 0 {
		err = switched.BuildTests(t.Context(), h.root, h.dir, packages)
	}
	t.Logf("%d mutants are built at once, after %v; %d are built alone", len(table)-len(alone), time.Since(began).Round(time.Second), len(alone))
	return &h, err
}

// play plays a suite, first without a mutant, and on each of them.
func (h *hunt) play(t *testing.T, name string, table Table) {
	t.Helper()
	s, began, limit := suites[name], time.Now(), 30*time.Minute
	unbroken := func(t *testing.T, s Suite, args ...string) {
		t.Helper()
		if by, err := s.play(t.Context(), h.root, s.binary(h.dir), "", limit, args...); by != "" || err != nil {
			t.Fatalf("without a mutant: %s, %v", by, err)
		}
	}
	if !s.Led {
		unbroken(t, s)
		limit = time.Minute + 10*time.Since(began)
	}
	for _, m := range table {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			by, err := h.hunt(t, s, &m, limit)
			switch {
			case err != nil:
				t.Error(err)
			case by == "":
				t.Errorf("%s (%s) is not caught by %s", m.Name, m.Wrong, name)
			default:
				t.Logf("%s (%s): %s, after %v", m.Name, m.Wrong, by, time.Since(began).Round(100*time.Millisecond))
			}
			if found := inHistory.FindStringSubmatch(by); found != nil {
				h.seeds.Store(m.Name, found[1])
				unbroken(t, Suite{Package: s.Package, Test: "TestReplay"}, "-led", m.Name, "-seed", found[1])
			}
		})
	}
}

// hunt plays a suite on a mutant.
func (h *hunt) hunt(t *testing.T, s Suite, m *Mutant, limit time.Duration) (by string, err error) {
	t.Helper()
	binary := s.binary(h.dir)
	if h.alone.Find(m.Name) != nil {
		sources, err := m.Apply(h.root)
		if err != nil {
			return "", err
		}
		if binary, err = s.build(t.Context(), sources, h.root, t.TempDir()); err != nil {
			return "", fmt.Errorf("mutant %s does not compile: %w", m.Name, err)
		}
	}
	var led []string
	if s.Led {
		led = []string{"-led", m.Name, fmt.Sprintf("-fresh=%v", *freshFlag)}
	}
	by, err = s.play(t.Context(), h.root, binary, m.Name, limit, led...)
	if s.Led && by == noEnd { // so many histories take long on a busy machine
		by, err = "", errNoTest
	}
	if err != nil {
		err = fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return by, err
}

// record writes the seeds of what was caught into seedsFile.
func (h *hunt) record(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(seedsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, " ")
		lines[name] = line
	}
	h.seeds.Range(func(name, seed any) bool {
		lines[name.(string)] = fmt.Sprintln(name, seed)
		return true
	})
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		all.WriteString(lines[name])
	}
	if err := os.WriteFile(seedsFile, []byte(all.String()), 0o600); err != nil {
		t.Error(err)
	}
}
