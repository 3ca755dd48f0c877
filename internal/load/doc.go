// Package load is the arithmetic of a load generator for a fleet that shares a
// limit: when calls arrive, how they spread over instances, how permits are
// counted by window, and whether the limit held.
//
// Nothing in it does I/O or starts a goroutine, and every instant is a
// parameter, in nanoseconds since the Unix epoch. It knows the limiter only by
// the permits that came out, and when: counts and clock are its own, so a fault in
// the limiter's counters, or in its clock, cannot hide itself here.
package load
