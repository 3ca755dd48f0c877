package config

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// mostCells bounds how many cells of time a run is counted in: 32 MB for each
// goroutine that makes calls.
const mostCells = 2_000_000

// Shaped reports whether limits count in other spans than aligned windows, which
// are the default.
func (c *Config) Shaped() bool { return c.policy.Shape != "" && c.policy.Shape != quota.ShapeFixed }

// Cell is the length of the unit in which permits are counted: windows of the
// shortest limit, or the slots of the permits of other shapes.
func (c *Config) Cell() time.Duration {
	if !c.Shaped() {
		return c.Window()
	}
	return protocol.SlotOf(c.Window())
}

// Placing is how permits are placed by the clock of their generator.
func (c *Config) Placing(tolerance time.Duration) load.Placing {
	p := load.Placing{Length: c.Cell(), Aligned: !c.Shaped(), Valid: c.Window(), Tolerance: tolerance}
	if c.Shaped() && c.policy.Guard > 0 { // from its issue on, which is later in its slot
		p.Valid, p.Slack = c.policy.Guard, c.Cell()
	}
	return p
}

// Spans is how the permits of a shape are judged, of a fleet of which so many
// instances have left and were replaced; nil with aligned windows. An instance that
// left may have had a share for a while beside its replacement, and one that lost
// etcd beside its own earlier registration.
func (c *Config) Spans(left int) *load.Shape {
	if !c.Shaped() {
		return nil
	}
	left += c.Instances * len(c.Faults)
	return &load.Shape{
		Kind: c.policy.Shape, Cell: c.Cell(), Burst: c.policy.Burst,
		Transit: c.policy.Guard, Crowd: c.Instances + left,
	}
}

// ShapeText says, after the limit, how it counts; empty for aligned windows.
func (c *Config) ShapeText() (text string) {
	if c.Shaped() {
		text = ", " + string(c.policy.Shape)
	}
	if c.policy.Burst > 0 {
		text += fmt.Sprintf(" with a burst of %s", humanize.Comma(c.policy.Burst))
	}
	if c.policy.WarmUp > 0 {
		text += fmt.Sprintf(", warm-up %v", c.policy.WarmUp)
	}
	return text
}
