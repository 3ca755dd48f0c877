package clock

import (
	"time"
)

// Observe compares corrected time with the estimate of true time, or with the
// operating system's clock where there is none, at an instant that Now returned,
// and corrects. Call it about once a second; an instant older than the last one
// is ignored.
func (c *Clock) Observe(at Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := at.Mono - c.mu.observed
	if elapsed <= 0 {
		return
	}
	c.mu.observed = at.Mono
	os := at.Wall - at.Mono
	if jump := os - c.mu.os; jump >= int64(StepThreshold) {
		c.jumps.Add(1)
		c.jumpedLocked(time.Duration(jump))
	}
	c.mu.os = os

	offset := c.offset.Load()
	var next int64
	var m move
	if c.mu.estimate != nil {
		next, m = steer(offset, *c.mu.estimate, elapsed)
	} else {
		next, m = correct(offset, os, elapsed)
	}
	c.moves[m].Add(1)
	if next < offset {
		// The floor first: a reader between the two stores must not see time run
		// back.
		c.floor.Store(max(c.floor.Load(), at.Mono+offset))
	}
	c.offset.Store(next)
	c.ahead.Store(os - next)
}

// Jumped reports whether Observe would count a jump at an instant that Now returned.
func (c *Clock) Jumped(at Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Wall-at.Mono-c.mu.os >= int64(StepThreshold)
}

// jumpedLocked corrects the estimate after the operating system's clock has
// jumped ahead of the monotonic one. If the machine slept, the monotonic clock,
// which the estimate is tied to, stood still: true time went on. If somebody set
// the clock, true time did not. Where nobody can tell, either may be true until
// the next measurement; to step forward only loses windows.
func (c *Clock) jumpedLocked(jump time.Duration) {
	total, known := c.suspended()
	slept := total - c.mu.slept
	c.mu.slept = total
	if c.mu.estimate == nil || known && slept < time.Millisecond {
		return
	}
	if !known {
		slept = jump
		c.mu.estimate.Error += jump
	}
	c.mu.estimate.Offset += int64(slept)
	c.offset.Add(int64(slept))
	c.moves[stepped].Add(1)
}

// move is how a difference was corrected.
type move uint8

const (
	slewed  move = iota // at 500 ppm at most
	stepped             // forward, at once
	halted              // set back: time stands still until it is true
)

// correct returns the offset to use instead of offset, elapsed nanoseconds
// after the last correction, where the operating system's clock has the offset
// target. The clock may be wrong, so it is not waited for: only slewing goes
// back.
func correct(offset, target, elapsed int64) (next int64, m move) {
	ahead := target - offset
	if ahead >= int64(StepThreshold) {
		return target, stepped
	}
	most := elapsed / slewShare
	return offset + max(-most, min(most, ahead)), slewed
}

// steer is the same where true time is estimated. A difference within the
// estimate's own error is no reason to step or to stand still.
func steer(offset int64, e Estimate, elapsed int64) (next int64, m move) {
	behind := e.Offset - offset
	least := int64(max(StepThreshold, e.Error))
	if behind <= -least && behind >= -int64(MaxHalt) {
		return e.Offset, halted
	}
	if behind >= int64(StepThreshold) && behind < least {
		most := elapsed / slewShare
		return offset + min(most, behind), slewed
	}
	return correct(offset, e.Offset, elapsed)
}
