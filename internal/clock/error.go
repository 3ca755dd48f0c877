package clock

import "time"

// Source is the reference of corrected time.
type Source string

// The sources, in order of trust.
const (
	// SourceSystem: the operating system's clock, of unknown error.
	SourceSystem Source = "system"
	// SourceKernel: the operating system's clock, whose error the kernel bounds
	// because a daemon disciplines it.
	SourceKernel Source = "kernel"
	// SourceNTP: measurements of this process's own.
	SourceNTP Source = "ntp"
)

// Estimate is true time by measurements.
type Estimate struct {
	Mono   int64         // the monotonic instant of the measurement
	Offset int64         // true wall time minus Mono, in nanoseconds
	Error  time.Duration // bound on Offset's error at Mono
	// Growth is by how much the bound grows, in parts per million of the time
	// since Mono, because the monotonic clock's rate is not exact.
	Growth int64
}

func grown(age, ppm int64) time.Duration { return time.Duration(max(0, age) / 1e6 * ppm) }

// Health is the state of measuring, for operators.
type Health struct {
	Source Source
	// Servers are asked, Answering have answered of late, Agreeing are those of
	// them that agree on the time.
	Servers, Answering, Agreeing int
	// Problem is one sentence about a fault; empty if there is none.
	Problem string
}

// Adopt makes corrected time follow an estimate from now on. The first one that
// comes before Observe is taken at once: no window has been told by this clock
// yet. Estimates that are older than the one in force are ignored.
func (c *Clock) Adopt(e Estimate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.estimate != nil && e.Mono < c.mu.estimate.Mono {
		return
	}
	if c.mu.observed == 0 {
		c.offset.Store(e.Offset)
	}
	c.mu.estimate = &e
}

// kernelGrowth is the rate in ppm at which the kernel itself lets its bound grow
// (MAXFREQ in linux/timex.h).
const kernelGrowth = 500

// Kernel notes the kernel's bound on the error of the operating system's clock
// at a monotonic instant; known is false if it has none. It counts until there
// is an estimate, and moves nothing.
func (c *Clock) Kernel(mono int64, bound time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.kernel = nil
	if known {
		c.mu.kernel = &Estimate{Mono: mono, Error: bound, Growth: kernelGrowth}
	}
}

// Note stores the state of measuring. The source is the clock's own matter.
func (c *Clock) Note(h Health) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.health = h
}

// Health returns the state of measuring.
func (c *Clock) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.mu.health
	h.Source = SourceSystem
	if c.mu.estimate != nil {
		h.Source = SourceNTP
	} else if c.mu.kernel != nil {
		h.Source = SourceKernel
	}
	return h
}

// ErrorAt returns the bound on the error of corrected time at a monotonic
// instant, and whether one is known: the distance of corrected time from the
// estimate, the estimate's own error, and the drift since then.
func (c *Clock) ErrorAt(mono int64) (bound time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e, k := c.mu.estimate, c.mu.kernel; {
	case e != nil:
		return distance(c.offset.Load(), e.Offset) + e.Error + grown(mono-e.Mono, e.Growth), true
	case k != nil:
		return c.Ahead().Abs() + k.Error + grown(mono-k.Mono, k.Growth), true
	}
	return 0, false
}

// Measured returns the bound on the error of corrected time as the last
// measurement found it, less the corrections applied since; drift since then is
// not added. So a server that is away is no evidence against the clock. known is
// false if there was no measurement.
func (c *Clock) Measured() (bound time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.estimate == nil {
		return 0, false
	}
	return distance(c.offset.Load(), c.mu.estimate.Offset) + c.mu.estimate.Error, true
}

func distance(a, b int64) time.Duration { return time.Duration(a - b).Abs() }
