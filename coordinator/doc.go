// Package coordinator is the etcd side of Quotient. A Session makes a process an
// instance of its providers and tells limiters what is in force and who shares
// it; an Admin sets policies and looks at fleets.
//
// One session serves a process: one lease, one watch stream and one probe for
// all its providers.
//
// Goroutines. The session owns one that keeps the lease, one that sends probes
// (with a few reads under way at once) and one that writes reports; each
// provider (place) owns one that registers and follows the watch. All end in
// Close, which waits for them.
//
// Locks. Session.mu guards the set of places and the lease. place.mu keeps the
// calls to the sink in order: it is held while the sink is called, and while the
// tracker is used; never while etcd is. Order: place.mu before Session.mu.
package coordinator
