// Package simulation checks the settle rule, which is share.Planner, by itself and
// fast: all histories of a small world here, and one of a fleet of thousands in package
// large. Package histories attacks the code that ships around the rule.
package simulation
