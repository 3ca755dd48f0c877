// Loadgen drives a fleet of instances through Quotient and verifies that
// together they never issue more permits than the limit.
//
// With no flags it starts an embedded etcd and 96 instances, each with a
// session and a limiter of its own, offers one and a half times 300,000 calls
// per second for ten seconds, and prints what was issued in each window and a
// verdict. It counts the permits itself, by the window that each one tells, and
// never asks the limiters what they counted.
//
// The fleet can be spread over processes, some of which are killed on the way.
// What a killed one had counted is in the sum: it counts in memory that is a file
// too, and counts a permit before it takes it. Children are this very program,
// and none outlives it, however it ends.
//
// Exit status: 0 the limit held, 1 it did not, 2 bad usage, 3 it could not run,
// saw no whole window, or a child died that was not to.
package main
