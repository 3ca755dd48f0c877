// Package coordinator is the etcd side of Quotient. A Session makes a process an instance
// of its providers. It tells limiters the policies in force and the instances that share
// them. An Admin sets policies and reads fleets.
//
// One session serves a process: one lease and one probe for all its providers, and
// one watch stream for each.
//
// Policies that cannot be read. An instance that has a good policy keeps it when a broken
// one replaces it. An instance that registers later has no good policy: it counts in the
// fleet, issues nothing and reports the problem. Both take the next policy that can be
// read.
//
// Goroutines. The session owns one that keeps the lease, one that sends probes (with a
// few reads under way at once) and one that writes reports. Each provider (membership)
// owns one each for its registration and watch, for the provider's pauses, for permits
// of long windows, and for asks and loans that come. One of the session writes those that
// go. All end in Close, which waits for them.
//
// Locks. Session.mu guards the set of memberships and the lease. membership.mu keeps the
// calls to the sink in order: it is held while the sink is called, and while the
// tracker is used; never while etcd is. Order: membership.mu before Session.mu.
package coordinator
