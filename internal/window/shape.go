package window

import (
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Shape says over which spans of time the limits count. The zero Shape counts in
// aligned windows. While a policy's shape changes, the old and the new bind
// together, until no view in reach has the old one.
type Shape struct {
	// Sliding: no span of a window's length holds more than the share.
	Sliding bool
	// Bucket: permits accrue evenly, and Shares.Burst of them are kept at most.
	Bucket bool
	// Unaligned: aligned windows do not bind by themselves any more.
	Unaligned bool
	// Skew is twice the bound of clock errors, in nanoseconds: for so much longer
	// than a window's length a share that has grown is held back.
	Skew int64
	// WarmUp is the time, in nanoseconds, over which the share of an instance
	// that has just started grows to the whole.
	WarmUp int64
}

// Any reports whether a shape other than aligned windows binds.
func (s Shape) Any() bool { return s.Sliding || s.Bucket }

// Grows returns the next instant of wall time after wall at which a window falls
// out of reach, so that a share may grow.
func (s Shape) Grows(length time.Duration, wall int64) int64 {
	reach := int64(quota.ReachOf(length, 0)) + s.Skew
	return quota.WindowAt(length, wall-reach).End() + reach
}

// spanOf returns the span of time in which a permit counts, for a bucket: the
// window's length and what the clock may drift over it.
func spanOf(length time.Duration) int64 { return int64(length + quota.SlotOf(length)) }

// slotAt returns the number of the slot, of the slots for windows of a length,
// that holds the monotonic instant t.
func slotAt(length time.Duration, t int64) int64 {
	n, slot := t, int64(quota.SlotOf(length))
	if n < 0 {
		n -= slot - 1 // round down
	}
	return n / slot
}

// slotEnd returns when permits that can be had now must be told apart from later
// ones.
func (a *account) slotEnd(now int64) int64 {
	end := Forever
	if a.slide != nil {
		end = a.slide.end()
	}
	if a.bucket != nil {
		slot := int64(quota.SlotOf(a.window.Length))
		end = min(end, (slotAt(a.window.Length, now)+1)*slot, a.bucket.end(now))
	}
	return end
}

// unbooked is what was taken from the running segment, and the instant as of which
// it will be booked.
type unbooked struct{ taken, edge int64 }

// comes returns the instant, not before now, at which the n-th permit from now on
// can be issued under a share, as far as this limit's shapes go.
func (a *account) comes(n, share, now int64, u unbooked) int64 {
	at := now
	if share <= 0 {
		return Forever
	}
	if a.slide != nil {
		at = max(at, a.slide.when(addCapped(u.taken, n), share, now))
	}
	if a.bucket != nil {
		burst := a.bucket.burst
		if share > a.bound {
			burst = share // not known yet: at most so many
		}
		b := *a.bucket
		b.take(u.taken, u.edge)
		at = max(at, b.when(n, share, burst, now))
	}
	return at
}

// warmth is an instance's warm-up: linear from a third of its share to the
// whole, as Guava's warming-up limiter begins. It only ever takes away from a
// share. It begins once, with the first window that has a share.
type warmth struct {
	began bool
	since int64 // monotonic
}

// coldest is the part of its share that a fresh instance begins with: one in
// coldest.
const coldest = 3

// of returns how much of a share may be used in a window that starts at the
// monotonic instant start: at least one permit, if there is one.
func (w *warmth) of(share, start, span int64) int64 {
	age := start - w.since
	if span <= 0 || share <= 0 || share == Unbounded || w.began && age >= span {
		return share
	}
	if !w.began || age < 0 {
		age = 0
	}
	return max(1, scaled(share, span+(coldest-1)*age, coldest*span, 0))
}
