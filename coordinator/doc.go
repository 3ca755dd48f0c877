// Package coordinator is the etcd side of Quotient. A Session makes a process an instance
// of its providers. It tells limiters the policies in force and the instances that share
// them. Package admin, below this one, sets policies and reads fleets.
//
// One session serves a process: it has one lease, one watch of all providers and one probe.
// The session tries again after failures, with one back-off for all providers.
//
// Policies that cannot be read. An instance that has a good policy keeps it when a broken
// one replaces it. An instance that registers later has no good policy: it counts in the
// fleet, issues nothing and reports the problem. Both take the next policy that can be
// read.
package coordinator

// Decisions. A state machine decides all: session.Machine. Its Step takes an event and an instant,
// and returns effects. It has no clock, lock, goroutine or client. Session.runLocked does what the
// effects say: see watch.go.
//
// Goroutines. The session owns eight. They keep the lease, follow the watch, and register and
// list providers in batches. They send probes, and write reports, asks and loans in batches.
// One hears asks and loans, with another that sends its requests. One measures the time. A few
// reads of probes are under way at once. A provider at rest (membership) has no goroutine. It
// has one for its pauses and one for permits of long windows from its first need on. All end in
// Close, which waits for them.
//
// Locks. Session.mu guards the state machine. It is held while sinks are called; never while
// etcd is.
