package window

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// Shares tells a gate what it may issue. The gate asks under its lock; the
// answers must not block and must not call the gate.
type Shares interface {
	// Offset returns corrected wall time minus monotonic time, in nanoseconds.
	Offset() int64
	// Lengths returns the window lengths of all limits that bind a permit issued
	// at now, none twice.
	Lengths(now int64) []time.Duration
	// Bound returns the share of window w as far as it is known at now:
	// Unbounded if no limit of w's length constrains it. For a window that has
	// not begun it is the share if nothing changes. Under other shapes than
	// aligned windows it is the share at the instant now, which may lie ahead.
	Bound(w quota.Window, now int64) int64
	// Burst returns how many permits of window w may be issued at once, where
	// Terms.Shape says Bucket. It is asked for as Bound is.
	Burst(w quota.Window, now int64) int64
	// Terms returns what else decides whether permits may be issued at the
	// instant at. It is asked before the others at every boundary.
	Terms(at clock.Instant) Terms
}

// Terms are the conditions under which permits are issued, beside the shares.
type Terms struct {
	// Guard is the time at either edge of every window in which nothing is
	// issued, in nanoseconds.
	Guard int64
	// Strict says that permits may be issued only before Until and WallUntil,
	// the end of the proof that the view is recent by the monotonic and by the
	// uncorrected wall clock.
	Strict           bool
	Until, WallUntil int64
	// Lead, under Strict, is the largest difference between the uncorrected wall
	// clock and the monotonic one at which permits may be issued: more means that
	// the machine was suspended, or its clock set, since corrected time was last
	// looked after, and that windows cannot be told.
	Lead int64
	// Pacing says how permits are released within a window.
	Pacing Pacing
	// Shape says over which spans of time the limits count.
	Shape Shape
	// ShutUntil is a monotonic instant before which nothing is issued (the
	// provider asked for it), or 0.
	ShutUntil int64
	// Ceiling is the largest share that this instance could get in any window of
	// the present view. Who wants more at once is refused; 0: not known.
	Ceiling int64
	// Known says that future shares can be told, so that a waiter that cannot be
	// served in time is refused before it waits.
	Known bool
	// Hopeless says that waiting makes no sense; all waiters are refused.
	Hopeless bool
}

// Pacing says how permits are released within a window. The zero Pacing releases
// all of them at its start.
type Pacing struct {
	// Even releases them along the window.
	Even bool
	// Delay, if it is not 0, lets callers wait for up to so many nanoseconds, so
	// that permits are issued at the rate of earlier windows' arrivals.
	Delay int64
	// Phase sets instances out of step: any number, another one in each.
	Phase uint64
}

// Verdict is what became of a request.
type Verdict uint8

// The verdicts.
const (
	// Granted: the permits were issued.
	Granted Verdict = iota
	// Queued: the waiter has its place; it will be told.
	Queued
	// Limited: there are no permits now, or none will come in time.
	Limited
	// TooLarge: no window's share will ever hold so many permits.
	TooLarge
	// Full: the queue has no place.
	Full
	// Closed: the gate, or the waiter's owner, is closed.
	Closed
)
