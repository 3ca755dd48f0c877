package simulation

import (
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

const ms = int64(time.Millisecond)

// epoch is true time 0 in nanoseconds since the Unix epoch: a whole minute, so
// that the windows of every length start there.
const epoch = 28_333_334 * int64(time.Minute)

// span is a part of true time, [from, to).
type span struct{ from, to int64 }

func (s span) holds(t int64) bool { return s.from <= t && t < s.to }

// hostClock is what an instance has of time. Its readings are functions of true
// time.
type hostClock struct {
	e       int64 // the corrected wall clock is off by at most this
	base    int64 // monotonic reading at true time 0
	rate    int64 // ppm by which the monotonic clock runs fast
	err     int64 // error of the corrected wall clock at true time 0
	slew    int64 // ppm by which the error grows
	stepAt  int64 // the error jumps up once, when a measurement says so
	step    int64
	osErr   int64 // error of the operating system's wall clock
	suspend span  // the monotonic clock stands still
	resync  int64 // when the corrected clock is measured again
}

func newClock(r *rand.Rand, e int64) hostClock {
	const ppm = 1_000_000 / quota.DriftBound
	c := hostClock{e: e, base: r.Int64N(1000) * ms, rate: r.Int64N(2*ppm+1) - ppm,
		err: r.Int64N(2*e+1) - e, slew: r.Int64N(ppm+1) - ppm/2, osErr: r.Int64N(2*e+1) - e}
	if r.IntN(3) == 0 { // the extremes break rules sooner
		c.err, c.slew = e, 0
		if r.IntN(2) == 0 {
			c.err = -e
		}
	}
	if r.IntN(4) == 0 {
		c.stepAt, c.step = r.Int64N(4000)*ms, r.Int64N(e+1)
	}
	return c
}

// asleep returns how much of true time before t the monotonic clock missed.
func (c *hostClock) asleep(t int64) int64 {
	return max(0, min(t, c.suspend.to)-c.suspend.from)
}

func (c *hostClock) mono(t int64) int64 {
	run := t - c.asleep(t)
	return c.base + run + run*c.rate/1_000_000
}

// wall is the corrected wall clock: off by at most e, and after a suspension
// late by that much until it is measured again.
func (c *hostClock) wall(t int64) int64 {
	off := c.err + t/1_000_000*c.slew
	if t >= c.stepAt {
		off += c.step
	}
	off = max(-c.e, min(off, c.e))
	return epoch + t + off - c.behind(t)
}

// behind is what the corrected clock lost in a suspension and has not made up
// for: it runs on the monotonic clock. The operating system's clock shows it.
func (c *hostClock) behind(t int64) int64 {
	if t < c.resync {
		return c.asleep(t)
	}
	return 0
}

// os is the operating system's wall clock, which goes on while suspended.
func (c *hostClock) os(t int64) int64 { return epoch + t + c.osErr }
