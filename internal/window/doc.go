// Package window enforces the shares of one instance: it issues permits, of a provider and of its keys, at most as many as
// each limit leaves this instance, and keeps waiters in order. A limit counts by aligned windows or by another shape
// (sliding, bucket). A long limit (also: budget) has a window above a minute, or counts calls in flight: its permits come
// from etcd, some at a time.
//
// The package reads no clock, starts no goroutine and does no I/O: a method for which the time matters takes the instant
// at which it happens. An int64 instant is in monotonic nanoseconds, unless said otherwise. A clock.Instant has the
// uncorrected wall clock beside it, by which a proof ends too. Windows are aligned to corrected wall-clock time, which is
// the monotonic instant plus the offset of the Plan in force.
//
// The parts, from the inside out:
//
//   - shape.Schedules, of a package below this one: when a limit's permits may be issued.
//   - queue.Queue, of a package below this one: those who wait, in their order.
//   - Segment: the provider's permits for a span of time in which one plan holds. Taking is one compare-and-swap, without
//     a lock.
//   - Front: what calls may take of a key in the same way.
//   - Account: the permits issued of the provider, or of a key, in the current window of each limit. What calls take of a
//     segment is booked in the provider's later, mostly when the segment ends: so several limits cost a call no more than
//     one, and admit all or nothing.
//   - ledger: the provider's Account, whose permits may come by a shape.
//   - Trade: what others are asked for, and what they are lent, of the provider or of a key.
//   - Line: callers that wait, of the provider or of a key, at one instant: who of them is served, and what others may
//     take meanwhile.
//   - Gate: of a provider the segment, ledger, Trade and queue, under one lock. A key's Front and Account are not in it:
//     their owner, outside this package, has a lock for each key.
package window
