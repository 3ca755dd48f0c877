// Loadgen drives a fleet of instances through Quotient and verifies that
// together they never issue more permits than the limit.
//
// With no flags it starts an embedded etcd and 96 instances, each with a
// session and a limiter of its own, offers one and a half times 300,000 calls
// per second for ten seconds, and prints what was issued in each window and a
// verdict. It counts the permits itself, by the window that each one tells, and
// never asks the limiters what they counted.
//
// By its own clock, the system's, it checks what permits tell. Each must come in its
// window, give or take the policy's clock error, and no span of time may have more
// permits than the windows that it touches. The clock is read before a permit is
// asked for and after it came, so a busy machine makes no permit wrong. A permit that
// was asked for in its window and came later cannot be placed. If most are like that,
// or if the system's clock was set, the verdict is UNKNOWN. A run in which all clocks
// err alike says nothing of true time.
//
// The instances run in child processes of this program, which never outlive it. A
// killed one's counts are in the sum, because it counts in a mapped file, and before
// it takes a permit.
//
// Exit status: 0 the limit held, 1 it did not, 2 bad usage, 3 it could not run,
// could not judge, or a child died that was not to.
package main
