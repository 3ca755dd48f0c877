// Package simulation checks the promise over whole histories of a fleet.
//
// One seed is one history: hosts with clocks, an etcd of three members, a
// network, and events in true time, played in order by one goroutine. What
// decides about permits is the real code: view.Tracker, share.History,
// share.Planner, window.Gate and clock.Clock, each driven with the readings of
// a host's own clocks. The rest is a model, because only a model can lag, lie and
// lose on demand: etcd with revisions, batches, members that lag or are cut off,
// elections, lost leases, compaction, late and lost answers, watches that hang or
// end and data put back from a backup; hosts that pause, sleep, crash and start
// again; clocks that drift and are set; providers that ask for pauses; operators that
// change everything.
//
// The checker adds up what all incarnations issued for each window and compares
// it with what etcd held. Mutants are the real code with one safeguard taken out
// (patches of the tests), or a shell with one mistake, to see that the checker
// notices.
package simulation
