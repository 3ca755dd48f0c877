// Package window enforces the shares of one instance: it issues permits, of a provider and of its keys, at most as many as
// each limit leaves this instance, and keeps waiters in order. A limit counts by aligned windows or by another shape
// (sliding, bucket). Of a long limit (budget in the code) the permits come from etcd, some at a time.
//
// Every method takes the instant at which it happens: the package reads no clock,
// starts no goroutine and does no I/O. Instants are monotonic nanoseconds; windows
// are aligned to corrected wall-clock time, which is the monotonic instant plus the
// offset of the Plan in force.
//
// The parts, from the inside out:
//
//   - Segment: the provider's permits in a span of time in which nothing happens but taking. Taking is one
//     compare-and-swap, without a lock.
//   - Front: what calls may take of a key in the same way.
//   - Account: the permits issued of the provider, or of a key, in the current window of each limit. A provider's is
//     brought up to date only when a segment ends, so several limits cost no more than one, and admit all or nothing.
//   - ledger: the provider's Account, whose permits may come by a shape.
//   - Trade: what others are asked for, and what they are lent, of the provider or of a key.
//   - shape.Schedules, of a package below this one: when a limit's permits may be issued.
//   - queue.Queue, of a package below this one: those who wait, in their order.
//   - Gate: these under one lock.
package window
