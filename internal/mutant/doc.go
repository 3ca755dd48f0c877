// Package mutant breaks the module's code on purpose, one small patch at a time,
// and sees that its tests notice. A patch replaces text in source files by `go
// build -overlay`: the files on disk stay as they are, and production code needs
// no switches.
//
// It is for tests only.
package mutant
