package load

import (
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Takes is what a provider takes, from so long after measuring began.
type Takes struct {
	At    time.Duration
	Limit quota.Limit
}

// Capacity is a provider that refuses the calls beyond what it takes. It counts by
// windows of its own clock; a window has the capacity that it began with. It is safe for
// concurrent use.
type Capacity struct {
	steps []Takes // in order, all with windows of one length

	mu     sync.Mutex
	start  int64 // of the measured time; Never before
	counts map[int64]tried
}

// tried are the calls of a window.
type tried struct{ calls, refused int64 }

// NewCapacity returns a provider with these steps, the first of which is in force from
// the beginning.
func NewCapacity(steps []Takes) *Capacity {
	return &Capacity{steps: steps, start: Never, counts: map[int64]tried{}}
}

// Begin says when the measured time starts.
func (c *Capacity) Begin(start int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = start
}

// Call counts a call at an instant, and reports whether it is taken.
func (c *Capacity) Call(now int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	start := c.window(now).Start()
	t := c.counts[start]
	t.calls++
	taken := t.calls-t.refused <= c.at(start)
	if !taken {
		t.refused++
	}
	c.counts[start] = t
	return taken
}

func (c *Capacity) window(at int64) quota.Window { return quota.WindowAt(c.steps[0].Limit.Window, at) }

// at returns what is taken in the window that starts then.
func (c *Capacity) at(start int64) (takes int64) {
	for i, s := range c.steps {
		if i == 0 || c.start != Never && start >= c.start+int64(s.At) {
			takes = s.Limit.Permits
		}
	}
	return takes
}

// calmAfter is the time in which an adaptive fleet is expected to follow a step.
// usedEnough is the part of the capacity that it uses from then on.
const (
	calmAfter  = 10 * time.Second
	usedEnough = 0.9
)

// CapacityUse is how much of a provider's capacity was used in a span of time, by its
// whole windows.
type CapacityUse struct {
	Calls   int64 `json:"calls"`
	Refused int64 `json:"refused"`
	// RefusedRatio is the refused part of the calls, Used the used part of the capacity.
	RefusedRatio float64 `json:"refused_ratio"`
	Used         float64 `json:"used"`
}

// CapacitySummary is what came of a provider's capacity in the measured time.
type CapacitySummary struct {
	CapacityUse
	Steps []CapacityStep `json:"steps"`
}

// CapacityStep is what came of a step of the capacity.
type CapacityStep struct {
	AtSeconds float64 `json:"at_seconds"`
	Takes     string  `json:"takes"`
	// First is the use in the first 10 s, Later from then to the next step; nil
	// without a whole window.
	First *CapacityUse `json:"first"`
	Later *CapacityUse `json:"later"`
	// UsedAfterSeconds is from the step to the end of the first window in which 90% of
	// the capacity was used; nil if there was none.
	UsedAfterSeconds *float64 `json:"used_after_seconds"`
}

// Summary sums up the measured time, which ended then.
func (c *Capacity) Summary(end int64) *CapacitySummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.start == Never {
		return nil
	}
	s := &CapacitySummary{}
	if all, _ := c.use(c.start, end); all != nil {
		s.CapacityUse = *all
	}
	for i, step := range c.steps {
		from, to := c.start+int64(step.At), end
		if i+1 < len(c.steps) {
			to = min(end, c.start+int64(c.steps[i+1].At))
		}
		calm := min(to, from+int64(calmAfter))
		r := CapacityStep{AtSeconds: step.At.Seconds(), Takes: step.Limit.String()}
		r.First, _ = c.use(from, calm)
		r.Later, _ = c.use(calm, to)
		if _, used := c.use(from, to); used != Never {
			after := time.Duration(used - from).Seconds()
			r.UsedAfterSeconds = &after
		}
		s.Steps = append(s.Steps, r)
	}
	return s
}

// use returns the use in the whole windows between two instants, nil without one. It
// also returns the end of the first that was used enough, or Never.
func (c *Capacity) use(from, to int64) (u *CapacityUse, used int64) {
	used = Never
	takes := int64(0)
	for w := c.window(from + int64(c.steps[0].Limit.Window) - 1); w.End() <= to; w = c.window(w.End()) {
		if u == nil {
			u = &CapacityUse{}
		}
		t, most := c.counts[w.Start()], c.at(w.Start())
		u.Calls, u.Refused, takes = u.Calls+t.calls, u.Refused+t.refused, takes+most
		u.RefusedRatio, u.Used = ratio(u.Refused, u.Calls), ratio(u.Calls-u.Refused, takes)
		if ratio(t.calls-t.refused, most) >= usedEnough {
			used = min(used, w.End())
		}
	}
	return u, used
}
