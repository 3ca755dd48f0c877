package mutant

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// down is broken along with what victim_test.go has.
func down(n int) int { return n - 1 }

const victim = "test/mutant/victim_test.go"

// What a run shows: nothing wrong, or nothing at all.
const (
	survives = ""
	none     = "none"
)

// Tests that are built once with many mutants have each of them when it is switched on.
func TestAMutantIsCaughtOrNot(t *testing.T) {
	var kit Table
	want := map[string]string{}
	for _, c := range []struct {
		by     string
		mutant Mutant
	}{
		{"TestMethod", Replace("Method", "", victim, "2 * int(b)", "3 * int(b)")},
		{"TestMethod", Replace("SameFunction", "", victim, "2 * int(b)", "4 * int(b)")},
		{survives, Replace("SameResult", "", victim, "2 * int(b)", "int(b) + int(b)")},
		{"TestMethod", Replace("Panics", "", victim, "2 * int(b)", "2 / (int(b) - int(b))")},
		{none, Replace("Exits", "", victim, "2 * int(b)", "exit()")},
		{"TestVariadic", Replace("Variadic", "", victim, "return of[1]", "return of[0]")},
		{"TestUnnamed", Replace("Unnamed", "", victim, "bool { return false", "bool { return true")},
		{"TestGeneric", Replace("Generic", "", victim, "max(first, other)", "min(first, other)")},
		{"TestNoResult", Replace("NoResult", "", victim, "*n = to", "*n = to + 1")},
		{"TestOutside", Replace("Outside", "", victim, "dozen = 12", "dozen = 13")},
		{survives, Replace("OneFile", "", victim, "return n + 1", "return n + 2")},
		{"TestSeveralFiles", Mutant{Name: "SeveralFiles", Edits: []Edit{
			{victim, "return n + 1", "return n + 2"},
			{"test/mutant/mutant_test.go", "return n " + "- 1", "return n - 2"},
		}}},
	} {
		kit, want[c.mutant.Name] = append(kit, c.mutant), c.by
	}
	s := Suite{Package: "test/mutant", Test: "TestMethod|TestVariadic|TestUnnamed|TestGeneric|TestNoResult|TestOutside|TestSeveralFiles"}
	h, err := newHunt(t, kit, []Suite{s})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.alone) != 2 || h.alone.Find("Outside") == nil || h.alone.Find("Unnamed") == nil {
		t.Errorf("built alone: %v", h.alone)
	}
	for i := range kit {
		by, err := h.hunt(t, s, &kit[i], time.Minute)
		if errors.Is(err, errNoTest) {
			by, err = none, nil
		}
		if name := kit[i].Name; by != want[name] || err != nil {
			t.Errorf("%s: caught by %q, %v; want %q", name, by, err, want[name])
		}
	}
	if by, err := s.play(t.Context(), h.root, s.binary(h.dir), "", time.Minute); by != "" || err != nil {
		t.Errorf("without a mutant: %q, %v", by, err)
	}
	s.Test = "TestNowhere"
	if _, err := s.play(t.Context(), h.root, s.binary(h.dir), "", time.Minute); !errors.Is(err, errNoTest) {
		t.Errorf("no test: %v", err)
	}
}

// What cannot be built is named.
func TestAMutantThatDoesNotCompile(t *testing.T) {
	for _, m := range []Mutant{
		Replace("NoGo", "", victim, "2 * int(b)", "2 *"),
		Replace("NoInt", "", victim, "2 * int(b)", `"2"`),
		Replace("NotUsed", "", victim, "return n + 1", "m := 1; return n"),
		Replace("NoReturn", "", victim, "return n + 1", ""),
		Replace("Alone", "", victim, "dozen = 12", "dozen = true"),
		Replace("Twice", "", victim, "return", "return 0"),
		Replace("NotThere", "", victim, "return n + 3", "return n"),
		Replace("NoChange", "", victim, "2 * int(b)", "2 * int(b)"),
		{Name: "Nothing"},
	} {
		s := Suite{Package: "test/mutant", Test: "TestMethod"}
		h, err := newHunt(t, Table{m}, []Suite{s})
		if err == nil {
			_, err = h.hunt(t, s, &m, time.Minute)
		}
		if err == nil || !strings.Contains(err.Error(), m.Name) {
			t.Errorf("%s: %v", m.Name, err)
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
