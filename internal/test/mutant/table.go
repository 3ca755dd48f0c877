package mutant

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Table is mutants; no two have one name.
type Table []Mutant

// All is every mutant.
var All = slices.Concat(rules, gives, session, callers, edges, units, keys, proved)

// Find returns the mutant of that name, or nil.
func (table Table) Find(name string) *Mutant {
	for i := range table {
		if table[i].Name == name {
			return &table[i]
		}
	}
	return nil
}

// CaughtBy returns the names of the mutants that a suite catches.
func (table Table) CaughtBy(suite string) (names []string) {
	for i := range table {
		if slices.Contains(table[i].By, suite) {
			names = append(names, table[i].Name)
		}
	}
	return names
}

// Matching returns the mutants whose names match a regular expression: some.
func (table Table) Matching(name string) (Table, error) {
	r, err := regexp.Compile(name)
	if err != nil {
		return nil, err
	}
	some := slices.DeleteFunc(slices.Clone(table), func(m Mutant) bool { return !r.MatchString(m.Name) })
	if len(some) == 0 {
		return nil, fmt.Errorf("no mutant of %d matches %q", len(table), name)
	}
	return some, nil
}

// Due returns those that an edit of one of the changed files may let escape, and of the others
// each one whose turn it is: turn says "1/3" for the second of three turns.
func (table Table) Due(turn string, changed []string) (Table, error) {
	var now, turns int
	if _, err := fmt.Sscanf(turn, "%d/%d", &now, &turns); err != nil || turns < 1 || now < 0 || now >= turns {
		return nil, fmt.Errorf("turn %q: it is K/N, with 0 <= K < N", turn)
	}
	var due Table
	for i := range table {
		if i%turns == now || table[i].touchedBy(changed) {
			due = append(due, table[i])
		}
	}
	return due, nil
}

// touchedBy reports whether a mutant edits one of the files, or one is a test of a package
// that catches it.
func (m *Mutant) touchedBy(files []string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(m.Edits, func(e Edit) bool { return e.File == file }) ||
			strings.HasSuffix(file, "_test.go") && slices.ContainsFunc(m.By, func(suite string) bool {
				return strings.HasPrefix(suite, path.Dir(file)+" ")
			})
	})
}
