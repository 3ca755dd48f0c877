package clock

import "time"

// Observe compares corrected time with the estimate of true time at an instant that Now
// returned, and corrects it. Without an estimate it compares with the operating
// system's clock. Call it about once a second; an instant older than the last one is
// ignored.
func (c *Clock) Observe(at Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	elapsed := at.Mono - c.mu.observed
	if elapsed <= 0 {
		return
	}
	c.mu.observed = at.Mono
	if c.Jumped(at) {
		c.jumps.Add(1)
		c.jumpedLocked(time.Duration(c.since(at)))
	}
	os := at.Wall - at.Mono
	offset := c.offset.Load()
	next := correct(offset, elapsed, c.mu.estimate, os)
	if next < offset {
		// The floor first: a reader between the two stores must not see time run
		// back.
		c.floor.Store(max(c.floor.Load(), at.Mono+offset))
	}
	c.offset.Store(next)
	c.os.Store(os)
}

// Jumped reports whether Observe would count a jump at an instant that Now returned.
func (c *Clock) Jumped(at Instant) bool { return c.since(at) >= int64(StepThreshold) }

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
}

// correct returns the offset to use instead of offset, elapsed nanoseconds after the last
// correction. A large difference is taken at once: forward, and back only to an estimate,
// for which time stands still until it is true. The operating system's clock, which has
// the offset os and counts without an estimate, may be wrong and is not waited for. A
// difference within the estimate's own error is no reason for either.
func correct(offset, elapsed int64, e *Estimate, os int64) (next int64) {
	target, large, wait := os, int64(StepThreshold), int64(0)
	if e != nil {
		target, large, wait = e.Offset, max(large, int64(e.Error)), int64(MaxHalt)
	}
	most := elapsed / slewShare
	ahead := target - offset
	if ahead >= large || ahead <= -large && ahead >= -wait {
		return target
	}
	return offset + max(-most, min(most, ahead))
}
