// Package window enforces shares: it issues permits for aligned windows, at most as
// many as the share, and keeps waiters in order.
//
// Every method takes the instant at which it happens: the package reads no clock,
// starts no goroutine and does no I/O. Instants are monotonic nanoseconds; windows
// are aligned to corrected wall-clock time, which is the monotonic instant plus the
// offset of the Plan in force.
//
// The parts, from the inside out:
//
//   - Segment: a span of time in which nothing happens but taking. Taking is
//     one atomic decrement, without a lock.
//   - ledger: the permits issued in the current window of every limit. It is
//     brought up to date only when a segment ends, so several limits cost no
//     more than one, and admit all or nothing.
//   - shape.Schedules, of a package below this one: when a limit's permits may be issued.
//   - queue.Queue, of a package below this one: those who wait, in their order.
//   - Gate: these under one lock.
package window
