// Package clock keeps corrected wall-clock time on top of the monotonic clock.
//
// There is one line of time, the monotonic one; the wall clock is that plus an
// offset. The offset follows the operating system's clock, until there are
// measurements of true time (Adopt), and those from then on. Corrected time
// never runs backwards, whatever happens: a difference is slewed away at 500 ppm
// at most. A difference too large to slew is corrected in the direction in which
// windows cannot come again: a clock that is behind steps forward; one that is
// ahead of measured time stands still until true time has come.
package clock

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slewShare is the largest correction as a part of elapsed time: 1/2000, 500
	// ppm, as NTP daemons do. Together with 500 ppm of a bad oscillator it stays
	// within protocol.DriftBound.
	slewShare = 2000
	// StepThreshold is the difference from which on the operating system's clock
	// is taken to have been stepped. It is half of the default bound on a clock's
	// error; daemons that slew move both clocks alike, and are not seen here.
	StepThreshold = 25 * time.Millisecond
	// MaxHalt is the longest that corrected time stands still to wait for true
	// time: nothing is issued meanwhile. A clock that is further ahead is only
	// slewed, and an alarm.
	MaxHalt = 10 * time.Second
	// Tolerance is how far the two clocks may part between two observations
	// before windows can no longer be told, in nanoseconds.
	Tolerance = int64(StepThreshold)
)

// Forever is a monotonic instant that never comes: the deadline of who has none, and the end of what only
// news can end.
const Forever = int64(math.MaxInt64)

// Instant is one reading of both clocks, taken together. The zero Instant is
// before every reading.
type Instant struct {
	// Mono is the monotonic clock, in nanoseconds since the Clock was made. Go
	// reads CLOCK_MONOTONIC, which stands still while the machine is suspended.
	Mono int64
	// Wall is the operating system's wall clock, uncorrected, in nanoseconds since
	// the Unix epoch. It jumps when it is set, and over a suspension; it serves to
	// bound ages, not to find windows.
	Wall int64
}

// Clock is a process's idea of the time. Its methods are safe for concurrent
// use. Make one with New.
type Clock struct {
	anchor time.Time
	read   func() Instant // for tests: both clocks; nil: the real ones
	// offset is corrected wall time minus Mono, in nanoseconds. Written by
	// whoever corrects the clock, read by everybody.
	offset atomic.Int64
	// floor is the corrected wall time that was reached when the offset was last
	// lowered: until the sum of Mono and offset is there again, time stands still.
	floor atomic.Int64
	// os is Wall minus Mono as last observed. It is written after offset.
	os    atomic.Int64
	jumps atomic.Uint32 // how often the operating system's clock jumped ahead of the monotonic one

	mu struct {
		sync.Mutex
		observed int64 // monotonic instant of the last observation
		slept    time.Duration
		estimate *Estimate // of true time; nil while nothing was measured
		kernel   *Estimate // the operating system's clock; nil if the kernel bounds no error
		health   Health
	}
	// suspended tells how long the machine has been suspended in all.
	suspended func() (total time.Duration, known bool)
}

// New returns a clock that starts at the operating system's time.
func New() *Clock { return Driven(nil) }

// NewSkewed returns a clock for which the operating system's wall clock is wrong by
// skew. That is a function of monotonic time, in nanoseconds since the clock was made.
// Tests and experiments on one host set clocks apart by it.
func NewSkewed(skew func(mono int64) time.Duration) *Clock {
	real := &Clock{anchor: time.Now()}
	return Driven(func() Instant {
		i := real.Now()
		i.Wall += int64(skew(i.Mono))
		return i
	})
}

// Driven returns a clock that reads both clocks by read, for tests; nil stands for the
// real ones.
func Driven(read func() Instant) *Clock {
	c := &Clock{anchor: time.Now(), read: read}
	c.start(c.Now(), suspended)
	return c
}

// OnHost returns a clock like Driven for a process of a modelled host. suspended is as for Started.
func OnHost(read func() Instant, suspended func() (total time.Duration, known bool)) *Clock {
	if suspended == nil {
		suspended = func() (time.Duration, bool) { return 0, false }
	}
	c, first := &Clock{read: read}, read()
	c.mu.observed = first.Mono
	c.start(first, suspended)
	return c
}

// Started returns a clock whose first reading was first, for simulations: they
// hand their own readings to Observe, and do not call Now, Mono and Wall.
// suspended tells how long the machine has been suspended in all, if that is
// known; nil: it never is.
func Started(first Instant, suspended func() (total time.Duration, known bool)) *Clock {
	return OnHost(func() Instant { return first }, suspended)
}

func (c *Clock) start(first Instant, suspended func() (time.Duration, bool)) {
	c.suspended = suspended
	c.mu.slept, _ = suspended()
	c.os.Store(first.Wall - first.Mono)
	c.offset.Store(c.os.Load())
	c.floor.Store(math.MinInt64)
}

// Now reads both clocks in one call, at about the cost of one time.Now().
func (c *Clock) Now() Instant {
	if c.read != nil {
		return c.read()
	}
	now := time.Now()
	return Instant{Mono: int64(now.Sub(c.anchor)), Wall: now.UnixNano()}
}

// Skewed reports whether the clock was made for a test: the kernel's bound on its own
// clock's error then does not apply to this one.
func (c *Clock) Skewed() bool { return c.read != nil }

// Mono reads the monotonic clock only, at about half the cost of Now.
func (c *Clock) Mono() int64 {
	if c.read != nil {
		return c.read().Mono
	}
	return int64(time.Since(c.anchor))
}

// Offset returns corrected wall time minus monotonic time, in nanoseconds. While
// corrected time stands still (Halts) it is that of true time, which tells the
// windows that have not begun.
func (c *Clock) Offset() int64 { return c.offset.Load() }

// WallAt returns the corrected wall-clock time, in nanoseconds since the Unix
// epoch, at a monotonic instant that does not lie before the last Observe.
func (c *Clock) WallAt(mono int64) int64 {
	offset := c.offset.Load()
	if offset > 0 && mono > math.MaxInt64-offset {
		return math.MaxInt64 // the end of time: nothing comes before it
	}
	return max(mono+offset, c.floor.Load())
}

// Latest returns the latest corrected wall-clock time that it may be at an instant
// that Now returned. It is later than WallAt after a suspension that nobody has
// observed yet, in which the monotonic clock stood still.
func (c *Clock) Latest(at Instant) int64 {
	wall := c.WallAt(at.Mono)
	if slept := c.since(at); slept > Tolerance {
		wall += slept
	}
	return wall
}

// Wall returns the corrected wall-clock time now, in nanoseconds since the Unix
// epoch.
func (c *Clock) Wall() int64 { return c.WallAt(c.Mono()) }

// Ahead returns how far the operating system's clock is ahead of corrected time
// (behind, if negative), as last observed. Without measurements, StepThreshold
// or more behind means that somebody set the clock back, and that corrected time
// follows slowly.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.os.Load() - c.offset.Load()) }

// since is how far the operating system's clock has run ahead of the monotonic one
// since the last observation. The instant is one that Now returned.
func (c *Clock) since(at Instant) int64 { return at.Wall - at.Mono - c.os.Load() }

// Jumps returns how often the operating system's clock was found to have jumped
// ahead of the monotonic one: it was set, or the machine slept. A measurement is
// due then.
func (c *Clock) Jumps() uint32 { return c.jumps.Load() }
