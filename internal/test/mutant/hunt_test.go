package mutant

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	mutantsFlag = flag.String("mutants", "", "play the mutants whose `name` matches, a regular expression; each takes about 10 s of a processor")
	suitesFlag  = flag.String("suites", ".", "play the suites whose `name` matches, a regular expression")
	sinceFlag   = flag.String("changed-since", "", "of these, play those whose edited files or suites differ from a `commit`")
	turnFlag    = flag.Int("turn", -1, "with -changed-since, play about ten others too: those whose turn it is")
	freshFlag   = flag.Bool("fresh", false, "hunt in histories without the seeds of "+seedsFile)
	recordFlag  = flag.Bool("record", false, "write the seeds of the histories that catch mutants to "+seedsFile)
)

// seedsFile has a mutant and the seed of a history that catches it on each line.
const seedsFile = "../histories/testdata/mutants.txt"

// perTurn is about how many mutants have a turn.
const perTurn = 10

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
			if _, err := suiteOf(root(t), name); err != nil {
				t.Errorf("mutant %s: %v", m.Name, err)
			}
		}
	}
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
	if *sinceFlag != "" {
		c, err := changeSince(root(t), *sinceFlag)
		if err != nil {
			t.Fatal(err)
		}
		if table = table.changed(root(t), c, *turnFlag); len(table) == 0 {
			t.Log("no mutant's file or suite differs, and none has a turn")
			return
		}
	}
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
	h := hunt{root: root(t), dir: t.TempDir()}
	t.Run("by", func(t *testing.T) {
		for _, name := range slices.Sorted(maps.Keys(hunted)) {
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
	root, dir string
	unbroken  sync.Map // builds a package's tests without a mutant, by its path
	seeds     sync.Map // of histories that caught, by the mutant's name
}

// play plays a suite, first without a mutant, and on each of them.
func (h *hunt) play(t *testing.T, name string, table Table) {
	t.Helper()
	s, err := suiteOf(h.root, name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(h.dir, strings.ReplaceAll(s.Package, "/", "-"))
	build, _ := h.unbroken.LoadOrStore(s.Package, sync.OnceValues(func() (string, error) {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", err
		}
		return s.build(t.Context(), &Mutant{Name: "None"}, h.root, dir)
	}))
	binary, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	var one, all []string
	if s.Led {
		one = []string{"-led", table[0].Name, "-more", "0"}
		all = []string{fmt.Sprintf("-fresh=%v", *freshFlag)}
	}
	if by, err := s.play(t.Context(), h.root, binary, one...); by != "" || err != nil {
		t.Fatalf("without a mutant: %s, %v", by, err)
	}
	for _, m := range table {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			by, err := s.run(t.Context(), &m, h.root, t.TempDir(), all...)
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
			}
		})
	}
}

// change is what differs from a commit.
type change struct {
	files []string // from the root
	known string   // this package's text in that commit
}

// changeSince returns what differs from a commit, in files that git knows.
func changeSince(root, commit string) (c change, err error) {
	git := func(args ...string) string {
		run := exec.Command("git", args...)
		run.Dir = root
		out, failed := run.Output()
		err = cmp.Or(err, failed)
		return string(out)
	}
	c.files = strings.Fields(git("diff", "--name-only", commit))
	c.known = git("grep", "-h", "", commit, "--", "internal/test/mutant")
	return c, err
}

// changed returns the mutants that are new since, and those of which an edited file or a
// suite differs. With a turn it adds others.
func (table Table) changed(root string, c change, turn int) (some Table) {
	others := max(1, (len(table)+perTurn-1)/perTurn)
	for i, m := range table {
		if turn >= 0 && i%others == turn%others || m.differs(root, c.files) || !strings.Contains(c.known, fmt.Sprintf("%q", m.Name)) {
			some = append(some, m)
		}
	}
	return some
}

// differs says whether the mutant edits one of the files, or one of its suites has it.
func (m *Mutant) differs(root string, files []string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(m.Edits, func(e Edit) bool { return e.File == file }) ||
			slices.ContainsFunc(m.By, func(name string) bool {
				s, err := suiteOf(root, name)
				has, bad := filepath.Match(s.Files, file)
				return err != nil || bad != nil || has
			})
	})
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
