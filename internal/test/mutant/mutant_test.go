package mutant

import (
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
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	suite := Suite{Package: "./internal/test/mutant", Run: "^TestCounts$", Limit: time.Minute}
	for _, c := range []struct {
		mutant Mutant
		by     string
		err    string
	}{
		{Mutant{Name: "Caught", Edits: edit("+ 1", "+ 2")}, "TestCounts", ""},
		{Mutant{Name: "Panics", Edits: edit("+ 1", "/ (n - n)")}, "TestCounts", ""},
		{Mutant{Name: "Survives", Edits: edit("+ 1", "+ 2 - 1")}, "", ""},
		{Mutant{Name: "NoGo", Edits: edit("+ 1", "+")}, "", "does not compile"},
		{Mutant{Name: "Twice", Edits: []Edit{{here, "mutant", "m"}}}, "", "times"},
		{Mutant{Name: "NotThere", Edits: edit("+ 3", "+ 4")}, "", "0 times"},
		{Mutant{Name: "Nothing"}, "", "changes nothing"},
	} {
		by, err := c.mutant.hunt(t.Context(), root, t.TempDir(), []Suite{suite})
		if by != c.by || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: caught by %q, error %v", c.mutant.Name, by, err)
		}
	}
}
