// Package simulation checks the settle rule, which is share.Planner, by itself and fast:
// all histories of a small world here, and one of a fleet of thousands in package large.
// What ships around the rule is attacked by package shipped.
package simulation
