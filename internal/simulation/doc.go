// Package simulation checks the settle rule over whole histories of a fleet:
// the real share.History, and around it thin models of everything else that
// can go wrong. One seed is one history; the same seed gives the same history.
//
// A history has one true time. The log of revisions is authoritative and holds
// joins, announced and other leaves, crashes, leases that expire under a living
// instance, restarts, changes of limits, window lengths and timing. Every
// incarnation has a host clock that is off by at most e and drifts, learns the
// revisions late and in bursts, proves its view recent by reads that take time,
// is paused, suspended, cut off and hit by compaction, and takes as many
// permits as it is allowed to.
//
// Incarnations do not talk to each other: the log is made first, and each lives
// through it alone. The checker then adds up what all of them issued for each
// window and compares it with the log. Faults name the rules that can be
// broken on purpose, to see that the checker notices.
package simulation
