package shape

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Shape says over which spans of time the limits count. The zero Shape counts in
// aligned windows. While a policy's shape changes, the old and the new bind
// together, until no view in reach has the old one.
type Shape struct {
	// Sliding: no span of a window's length holds more than the share.
	Sliding bool
	// Bucket: permits accrue evenly, and Terms.Burst of them are kept at most.
	Bucket bool
	// Unaligned: aligned windows do not bind by themselves any more.
	Unaligned bool
	// Skew is twice the bound of clock errors, in nanoseconds: for so much longer
	// than a window's length a share that has grown is held back.
	Skew int64
	// Transit is the time that a call may take to the provider, in nanoseconds;
	// less than half of the shortest window. A permit is valid for that long, or
	// for a window's length where it is 0, and counts for so much longer.
	Transit int64
}

// Any reports whether a shape other than aligned windows binds.
func (s Shape) Any() bool { return s.Sliding || s.Bucket }

// Grows returns the next instant of wall time after wall at which a window falls
// out of reach, so that a share may grow.
func (s Shape) Grows(length time.Duration, wall int64) int64 {
	reach := int64(protocol.ReachOf(length, time.Duration(s.Transit), 0)) + s.Skew
	return quota.WindowAt(length, wall-reach).End() + reach
}

// Pacing says how permits are released within a window. The zero Pacing releases
// all of them at its start.
type Pacing struct {
	// Even releases them along the window.
	Even bool
	// Phase sets instances out of step: any number, another one in each.
	Phase uint64
}

// spanOf returns the span of time in which a permit counts, for a bucket: the
// window's length and what the clock may drift over it.
func spanOf(length time.Duration) int64 { return int64(length + protocol.SlotOf(length)) }

// slotAt returns the number of the slot, of the slots for windows of a length,
// that holds the monotonic instant t.
func slotAt(length time.Duration, t int64) int64 {
	n, slot := t, int64(protocol.SlotOf(length))
	if n < 0 {
		n -= slot - 1 // round down
	}
	return n / slot
}

// SlotStart returns the monotonic instant at which the slot begins, of those for windows of a length, that holds
// the monotonic instant t.
func SlotStart(length time.Duration, t int64) int64 {
	return slotAt(length, t) * int64(protocol.SlotOf(length))
}
