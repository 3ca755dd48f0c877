package main

import (
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// mostCells bounds how many cells of time a run is counted in: 32 MB for each
// goroutine that makes calls.
const mostCells = 2_000_000

// shaped reports whether limits count in other spans than aligned windows, which
// are the default.
func (c *config) shaped() bool { return c.shape != "" && c.shape != quota.ShapeFixed }

// cell is the length of what permits are counted by: windows of the shortest
// limit, or the slots that the permits of other shapes tell. Where those are as
// long as the buckets of the picture, it is half of one: counts are told apart by
// their length.
func (c *config) cell() time.Duration {
	if !c.shaped() {
		return c.window()
	}
	if slot := quota.SlotOf(c.window()); slot != bucket {
		return slot
	}
	return bucket / 2
}

// spans is how the permits of a shape are judged, of a fleet of which so many
// instances have left and were replaced; nil with aligned windows. Who has left
// may have had a share for a while beside who came, and who lost etcd beside its
// own registration of before.
func (c *config) spans(left int) *load.Shape {
	if !c.shaped() {
		return nil
	}
	left += c.instances * len(c.faults)
	return &load.Shape{
		Kind: c.shape, Cell: c.cell(), Slot: quota.SlotOf(c.window()), Burst: c.burst,
		Crowd: c.instances + left, Equal: c.share == quota.ShareEqual,
	}
}

// checkShape looks at what the policy's own rules do not know of.
func (c *config) checkShape() error {
	switch c.shape {
	case quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket:
	default:
		return usagef("--shape: %q is unknown: use fixed, sliding or bucket", c.shape)
	}
	if c.burst > 0 && c.shape != quota.ShapeBucket {
		return usagef("--burst %d is for --shape bucket, and --shape is %s", c.burst, c.shape)
	}
	if !c.shaped() {
		return nil
	}
	if c.pacing != quota.PacingOff {
		return usagef("--pacing %s releases permits along fixed windows, and --shape is %s: leave it out; --shape bucket with a small --burst is even by itself", c.pacing, c.shape)
	}
	if c.guard > 0 || c.guardAuto {
		return usagef("--guard %s keeps away from the edges of fixed windows, and --shape is %s: leave it out", quota.FormatGuard(c.guard, c.guardAuto), c.shape)
	}
	if most := mostCells * c.cell(); c.warmup+c.duration > most {
		return usagef("--shape %s is judged by cells of %v, and at most %s of them: --warmup and --duration may be %v together, not %v; use a shorter time, or longer windows",
			c.shape, c.cell(), thousands(mostCells), most, c.warmup+c.duration)
	}
	return nil
}

// shapeText says, after the limit, how it counts; empty for aligned windows.
func (c *config) shapeText() (text string) {
	if c.shaped() {
		text = ", " + string(c.shape)
	}
	if c.burst > 0 {
		text += fmt.Sprintf(" with a burst of %s", thousands(c.burst))
	}
	if c.warmUp > 0 {
		text += fmt.Sprintf(", warm-up %v", c.warmUp)
	}
	return text
}
