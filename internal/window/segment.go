package window

import (
	"math"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// sealed is the value of Segment.left after the segment has ended. It is less
// than every number of permits, so that taking fails as it does when none are
// left.
const sealed = math.MinInt64 / 2 // a floor can be taken off it

// Segment is a span of time in which the number of permits that may still be
// issued changes by taking only. It ends at a window's edge, when a share
// changes, or when a proof runs out; then the gate seals it and publishes the
// next one.
//
// All methods are safe for concurrent use.
type Segment struct {
	// left is the number of permits that may still be taken, or sealed.
	//
	//	n >= 0  -> n-k     any caller, by compare-and-swap, when k <= n, or if its call is
	//	                   not critical, k <= n-floor
	//	n >= 0  -> 0       the gate, under its lock, when a caller starts to wait:
	//	                   the rest belongs to the queue
	//	n >= 0  -> sealed  the gate, under its lock; the swap returns the exact
	//	                   rest, and no caller can take any more
	//
	// Nothing leaves the state sealed.
	left atomic.Int64

	// All else never changes once the segment is published.

	// until is the instant from which on nothing may be taken: the next edge, or
	// the end of the proof if that is nearer. Takers compare it with their own clock
	// reading, so that a process that slept through the edge cannot take from an old
	// window.
	until int64
	// wallUntil is the same for the age of the proof by the wall clock, which
	// goes on while a suspended machine's monotonic clock stands still. Compared
	// only if Strict.
	wallUntil int64

	// Strict says that takers must read and compare both clocks (outage rule
	// stop).
	Strict bool
	// Shadow says that requests pass even if no permits are left.
	Shadow bool
	// lead is Proof.Lead.
	lead int64
	// floor is how many of the permits left are kept for critical calls.
	floor int64
	// large is the most permits that a call may want without being large; 0 if none is large.
	large int64
	// Grant is the window for which the permits are.
	Grant queue.Grant
	// Keys are the windows of keys that run; nil if keys have no limits.
	Keys *plans.Keys
	// KeysLend says that permits of keys may be lent.
	KeysLend bool
}

// Take takes n permits for a call of class c, all or none, at the monotonic instant now. It
// fails if fewer than n are left for the class, or if now is not before the segment's end;
// Open tells which.
func (s *Segment) Take(now, n int64, c queue.Class) bool {
	if now >= s.until {
		return false
	}
	floor := s.keeps(c)
	for {
		left := s.left.Load()
		if left-floor < n {
			return false
		}
		if s.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// keeps returns how many permits a call of class c must leave.
func (s *Segment) keeps(c queue.Class) int64 {
	if c == queue.Critical {
		return 0
	}
	return s.floor
}

// TakeUpTo takes as many permits as are left for a call of class c, at most n, and returns
// their number.
func (s *Segment) TakeUpTo(now, n int64, c queue.Class) int64 {
	for s.Open(now) {
		if k := max(0, min(s.Left()-s.keeps(c), n)); k == 0 || s.Take(now, k, c) {
			return k
		}
	}
	return 0
}

// WallValid reports whether, by the uncorrected wall clock too, the proof is
// young enough and corrected time can be relied on. Only strict segments need it.
func (s *Segment) WallValid(at clock.Instant) bool {
	return at.Wall < s.wallUntil && at.Wall-at.Mono <= s.lead
}

// Leaves reports whether a call for n permits, which may wait, is large. Such a call goes by the queue,
// where it leaves small ones what they will want.
func (s *Segment) Leaves(n int64) bool { return s.large > 0 && n > s.large }

// Open reports whether the segment is the one to ask at the instant now: if
// not, the gate must move on first.
func (s *Segment) Open(now int64) bool {
	return now < s.until && s.left.Load() != sealed
}

// Left returns the number of permits left for newcomers.
func (s *Segment) Left() int64 { return max(0, s.left.Load()) }

// passed is the grant of a call that shadow mode lets pass.
func (s *Segment) passed() queue.Grant {
	return queue.Grant{Start: s.Grant.Start, End: s.Grant.End, At: s.Grant.At}
}

// seal ends the segment and returns the permits left.
func (s *Segment) seal() int64 { return s.left.Swap(sealed) }

// withhold takes away all that is left and returns it. Takers then find the
// segment spent.
func (s *Segment) withhold() int64 { return s.left.Swap(0) }
