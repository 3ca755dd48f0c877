package mutant

import (
	"fmt"
	"regexp"
	"slices"
)

// Table is mutants; no two have one name.
type Table []Mutant

// All is every mutant.
var All = slices.Concat(rules, gives, session, callers, edges, keys, proved)

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
