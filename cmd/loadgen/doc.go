// Loadgen drives a fleet of instances through Quotient and verifies that
// together they never issue more permits than the limit.
//
// With no flags it starts an embedded etcd and 96 instances, each with a
// session and a limiter of its own, offers one and a half times 300,000 calls
// per second for ten seconds, and prints what was issued in each window and a
// verdict. It counts the permits itself, by the window that each one tells, and
// never asks the limiters what they counted.
//
// By its own clock, the system's, it checks what permits tell: each must have come
// in its window, give or take the clock error that the policy allows, and no span
// of time may have more permits than the windows that it touches. The clock is
// read before a permit is asked for and after it came, so a busy machine is no
// reason to call a permit wrong. A permit that was asked for in its window and came
// later cannot be placed; if most are like that, the verdict is UNKNOWN. So it is if
// the system's clock was set meanwhile. A run in which all clocks err alike, the
// generator's too, shows nothing of true time.
//
// The fleet can be spread over processes, some of which are killed on the way.
// What a killed one had counted is in the sum: it counts in memory that is a file
// too, and counts a permit before it takes it. Children are this very program,
// and none outlives it, however it ends.
//
// Exit status: 0 the limit held, 1 it did not, 2 bad usage, 3 it could not run,
// could not judge, or a child died that was not to.
package main
