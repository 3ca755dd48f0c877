package mutant

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// counts is what the mutants of this test are of.
func counts(n int) int { return n + 1 }

func TestCounts(t *testing.T) {
	if counts(1) != 2 {
		t.Error("wrong")
	}
}

const here = "internal/test/mutant/mutant_test.go"

func edit(before, after string) []Edit {
	return []Edit{{here, "return n " + before, "return n " + after}}
}

func TestAMutantIsCaughtOrNot(t *testing.T) {
	for _, c := range []struct {
		mutant Mutant
		run    string
		by     string
		err    string
	}{
		{Mutant{Name: "Caught", Edits: edit("+ 1", "+ 2")}, "TestCounts", "TestCounts", ""},
		{Mutant{Name: "Panics", Edits: edit("+ 1", "/ (n - n)")}, "TestCounts", "TestCounts", ""},
		{Mutant{Name: "Survives", Edits: edit("+ 1", "+ 2 - 1")}, "TestCounts", "", ""},
		{Mutant{Name: "NoGo", Edits: edit("+ 1", "+")}, "TestCounts", "", "does not compile"},
		{Mutant{Name: "Twice", Edits: []Edit{{here, "mutant", "m"}}}, "TestCounts", "", "times"},
		{Mutant{Name: "NotThere", Edits: edit("+ 3", "+ 4")}, "TestCounts", "", "0 times"},
		{Mutant{Name: "Nothing"}, "TestCounts", "", ""},
		{Mutant{Name: "NoTest", Edits: edit("+ 1", "+ 2")}, "TestCountsWell", "", "no test"},
		{Mutant{Name: "Exits", Edits: edit("+ 1", "+ exit()")}, "TestCounts", "", "no test"},
	} {
		suite := Suite{Package: "internal/test/mutant", Run: "^" + c.run + "$", Limit: time.Minute}
		by, err := suite.run(t.Context(), &c.mutant, root(t), t.TempDir())
		if by != c.by || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: caught by %q, error %v", c.mutant.Name, by, err)
		}
	}
}

// exit ends the process as a TestMain does that cannot begin.
func exit() int { //nolint:unused // the mutant Exits calls it
	os.Exit(1)
	return 0
}

func TestASuiteIsThere(t *testing.T) {
	for name, there := range map[string]bool{
		liveness: true, "internal/test/mutant TestCounts": true, "internal/test/mutant TestCountsWell": false,
		"internal/test/mutant": false, "internal/nowhere TestCounts": false, "": false,
	} {
		if _, err := suiteOf(root(t), name); (err == nil) != there {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAnExpressionMatches(t *testing.T) {
	for _, c := range []struct {
		table Table
		name  string
		ok    bool
	}{{All, "^Ceil$", true}, {All, "^NoSuch$", false}, {All, "(", false}, {nil, ".", false}} {
		if some, err := c.table.Matching(c.name); (err == nil) != c.ok || (len(some) > 0) != c.ok {
			t.Errorf("%d mutants, %q: %d, %v", len(c.table), c.name, len(some), err)
		}
	}
}

// Each mutant has a turn; one that is new, or whose file or test has changed, needs none.
func TestTurns(t *testing.T) {
	var known strings.Builder
	for _, m := range All {
		fmt.Fprintf(&known, "%q", m.Name)
	}
	had := map[string]bool{}
	for turn := range (len(All) + perTurn - 1) / perTurn {
		some := All.changed(root(t), change{known: known.String()}, turn)
		for _, m := range some {
			had[m.Name] = true
		}
		if len(some) < perTurn-1 || len(some) > perTurn {
			t.Errorf("in turn %d there are %d", turn, len(some))
		}
	}
	if len(had) != len(All) {
		t.Errorf("%d of %d mutants have a turn", len(had), len(All))
	}
	for news, want := range map[string]int{known.String(): 0, strings.Replace(known.String(), `"Ceil"`, "", 1): 1, "": len(All)} {
		if some := All.changed(root(t), change{known: news}, -1); len(some) != want {
			t.Errorf("%d mutants are new, want %d", len(some), want)
		}
	}
	m := Mutant{By: []string{"internal/test/mutant TestCounts"}, Edits: edit("+ 1", "+ 2")}
	for file, want := range map[string]bool{here: true, "internal/test/mutant/mutant.go": false} {
		if m.Edits[0].File = "x.go"; m.differs(root(t), []string{"y", file}) != want {
			t.Errorf("%s changed: want %v", file, want)
		}
	}
	if m.Edits[0].File = "y"; !m.differs(root(t), []string{"y"}) {
		t.Error("the edited file has changed")
	}
}
