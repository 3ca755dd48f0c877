// Command scale measures what coordination costs as a fleet grows: real sessions
// and limiters in child processes, on a real etcd in a process of its own. For
// every size it has all instances join at once, watches them while nothing
// happens, and sets limits; it prints a Markdown table.
//
//	go run ./scale --instances 10,100,300,1000,2000
//	go run ./scale --constants
//
// Processor time is each process's own, so other programs disturb it less than
// they disturb the times on the clock. Fleet and etcd share one machine here:
// what they use together bounds the size, and a fleet that has its own machines
// is bounded by etcd's part alone.
package main
