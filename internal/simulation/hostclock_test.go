package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

const ms = int64(time.Millisecond)

// epoch is true time 0 in nanoseconds since the Unix epoch: a whole minute, so
// that the windows of every length start there.
const epoch = 28_333_334 * int64(time.Minute)

// span is a part of true time, [from, to).
type span struct{ from, to int64 }

func (s span) holds(t int64) bool { return s.from <= t && t < s.to }

// blocked moves t to the end of the spans that hold it.
func blocked(t int64, spans []span) int64 {
	for moved := true; moved; {
		moved = false
		for _, s := range spans {
			if s.holds(t) {
				t, moved = s.to, true
			}
		}
	}
	return t
}

// hostClock is what a host has of time: its monotonic clock and the operating
// system's, as functions of true time. Corrected time is the real clock.Clock's
// business.
type hostClock struct {
	base   int64 // monotonic reading at true time 0
	rate   int64 // ppm by which the monotonic clock runs fast
	err    int64 // error of the operating system's clock at true time 0
	sleeps []span
	sets   []set
	backs  []span // it is set far back
}

// set is the operating system's clock set by delta at a true time.
type set struct{ at, delta int64 }

// rateBound is the largest error of the monotonic clock's rate, in ppm. With
// what corrected time is slewed by it makes protocol.DriftBound.
const rateBound = 500

// errorBound is how far operating systems' clocks may be off, so that corrected
// time is off by at most e: it follows a lead of up to clock.StepThreshold, as
// after a short suspension, slowly only.
func errorBound(e int64) int64 {
	const margin = 3 * ms // for drift that is still being slewed away
	if e > clock.Tolerance+margin {
		return e - clock.Tolerance - margin
	}
	return e * 6 / 10
}

func newHostClock(r *rand.Rand, bound int64) hostClock {
	c := hostClock{base: r.Int64N(1000) * ms, rate: r.Int64N(2*rateBound+1) - rateBound, err: r.Int64N(2*bound+1) - bound}
	if r.IntN(3) == 0 { // the extremes break rules sooner
		c.err = bound
		if r.IntN(2) == 0 {
			c.err = -bound
		}
	}
	return c
}

// mono is the monotonic clock, which stands still while the host is suspended.
func (c *hostClock) mono(t int64) int64 {
	run := t
	for _, s := range c.sleeps {
		run -= max(0, min(t, s.to)-s.from)
	}
	return c.base + run + run*c.rate/1_000_000
}

// os is the operating system's wall clock, which goes on while suspended.
func (c *hostClock) os(t int64) int64 {
	wall := epoch + t + c.err
	for _, s := range c.sets {
		if t >= s.at {
			wall += s.delta
		}
	}
	return wall
}

// read reads both clocks.
func (c *hostClock) read(t int64) clock.Instant {
	return clock.Instant{Mono: c.mono(t), Wall: c.os(t)}
}
