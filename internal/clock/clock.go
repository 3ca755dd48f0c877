// Package clock keeps corrected wall-clock time on top of the monotonic clock.
//
// There is one line of time, the monotonic one; the wall clock is that plus an
// offset. The offset is slewed, never stepped, so that corrected time does not
// run backwards whatever happens to the operating system's clock.
package clock

import (
	"sync/atomic"
	"time"
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
}

// New returns a clock that starts at the operating system's time.
func New() *Clock {
	c := &Clock{anchor: time.Now()}
	c.offset.Store(c.anchor.UnixNano())
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
