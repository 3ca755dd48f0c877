// Package shape says when the permits of one limit may be issued. There are four ways, and a permit is issued when
// each that binds allows it:
//
//   - aligned windows: all of a window's permits at its start
//   - the sliding window, a ring of counts: no span of a window's length holds more than the share
//   - the bucket: permits accrue evenly, and a burst of them is kept at most
//   - pacing, a line: a window's permits come along it
//
// Whoever counts a limit's permits has a Count for it and the Schedules of these ways, and tells them each permit that
// is issued or given back. What else they need of a plan is in the Terms. The package reads no clock: instants are
// monotonic nanoseconds.
package shape
