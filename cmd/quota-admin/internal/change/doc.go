// Package change edits policies over time: what is in force, what is announced,
// what one change does to both, how far it goes, and how two policies differ.
//
// It is pure: the instant is a parameter, and nothing is read or written.
package change
