// Package clock keeps corrected wall-clock time on top of the monotonic clock.
//
// There is one line of time, the monotonic one; the wall clock is that plus an
// offset. Corrected time never runs backwards, whatever happens to the
// operating system's clock: a difference is slewed away at 500 ppm at most. One
// case is stepped: a clock found far ahead of ours, as after a suspension, during
// which the monotonic clock stands still. Slewing would leave this host in the
// past for hours; stepping forward loses nothing but windows that are over.
package clock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/safeguard"
)

const (
	// slewShare is the largest correction as a part of elapsed time: 1/2000, 500
	// ppm, as NTP daemons do. Together with 500 ppm of a bad oscillator it stays
	// within quota.DriftBound.
	slewShare = 2000
	// StepThreshold is the difference from which on the operating system's clock
	// is taken to have been stepped. It is half of the default bound on a clock's
	// error; daemons that slew move both clocks alike, and are not seen here.
	StepThreshold = 25 * time.Millisecond
	// Tolerance is how far the two clocks may part between two observations
	// before windows can no longer be told, in nanoseconds.
	Tolerance = int64(StepThreshold)
)

// Instant is one reading of both clocks, taken together. The zero Instant is
// before every reading.
type Instant struct {
	// Mono is the monotonic clock, in nanoseconds since the Clock was made. Go
	// reads CLOCK_MONOTONIC, which stands still while the machine is suspended.
	Mono int64
	// Wall is the operating system's wall clock, uncorrected, in nanoseconds
	// since the Unix epoch. It jumps when somebody sets it, and over a
	// suspension; it serves to bound ages, not to find windows.
	Wall int64
}

// Clock is a process's idea of the time. Its methods are safe for concurrent
// use. Make one with New.
type Clock struct {
	anchor time.Time
	// offset is corrected wall time minus Mono, in nanoseconds. Written by
	// whoever corrects the clock, read by everybody.
	offset atomic.Int64
	// ahead is how far the operating system's clock was ahead of corrected time
	// when it was last observed; negative if behind.
	ahead atomic.Int64
	steps atomic.Uint32 // number of steps forward

	mu       sync.Mutex
	observed int64 // monotonic instant of the last observation
	off      safeguard.Set
}

// New returns a clock that starts at the operating system's time.
func New() *Clock {
	c := &Clock{anchor: time.Now()}
	c.offset.Store(c.anchor.UnixNano())
	return c
}

// Started returns a clock whose first reading was first, for simulations: they
// hand their own readings to Observe, and do not call Now, Mono and Wall.
// Safeguards may be switched off.
func Started(first Instant, off safeguard.Set) *Clock {
	c := &Clock{observed: first.Mono, off: off}
	c.offset.Store(first.Wall - first.Mono)
	return c
}

// Now reads both clocks in one call, at about the cost of one time.Now().
func (c *Clock) Now() Instant {
	now := time.Now()
	return Instant{Mono: int64(now.Sub(c.anchor)), Wall: now.UnixNano()}
}

// Mono reads the monotonic clock only, at about half the cost of Now.
func (c *Clock) Mono() int64 { return int64(time.Since(c.anchor)) }

// WallAt returns the corrected wall-clock time, in nanoseconds since the Unix
// epoch, at the monotonic instant mono.
func (c *Clock) WallAt(mono int64) int64 { return mono + c.offset.Load() }

// MonoAt returns the monotonic instant of a corrected wall-clock time.
func (c *Clock) MonoAt(wall int64) int64 { return wall - c.offset.Load() }

// Wall returns the corrected wall-clock time now, in nanoseconds since the Unix
// epoch.
func (c *Clock) Wall() int64 { return c.WallAt(c.Mono()) }

// Observe compares the operating system's clock with corrected time at an
// instant that Now returned, and corrects: it slews, or steps forward where the
// operating system's clock is StepThreshold ahead or more. Call it about once a
// second; an instant older than the last one is ignored.
func (c *Clock) Observe(at Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := at.Mono - c.observed
	if elapsed <= 0 {
		return
	}
	c.observed = at.Mono
	offset := c.offset.Load()
	next, stepped := correct(offset, at.Wall-at.Mono, elapsed)
	if c.off.Off(safeguard.WindowsForward) {
		next = at.Wall - at.Mono
	}
	c.offset.Store(next)
	c.ahead.Store(at.Wall - at.Mono - next)
	if stepped {
		c.steps.Add(1)
	}
}

// correct returns the offset to use instead of offset, elapsed nanoseconds
// after the last correction, where the operating system's clock has the offset
// target.
func correct(offset, target, elapsed int64) (next int64, stepped bool) {
	ahead := target - offset
	if ahead >= int64(StepThreshold) {
		return target, true
	}
	most := elapsed / slewShare
	return offset + max(-most, min(most, ahead)), false
}

// Ahead returns how far the operating system's clock is ahead of corrected time
// (behind, if negative), as last observed. StepThreshold or more behind means
// that somebody set the clock back, and that corrected time follows slowly.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.ahead.Load()) }

// Steps returns how often corrected time was stepped forward.
func (c *Clock) Steps() uint32 { return c.steps.Load() }

// Error returns the bound on the clock's error, and whether one is known. It is
// known only by measuring against other clocks, which this version does not.
func (c *Clock) Error() (bound time.Duration, known bool) { return 0, false }
