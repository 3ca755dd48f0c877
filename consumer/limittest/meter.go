package limittest

import (
	"fmt"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Meter counts calls as a provider that enforces limits would: by its own clock,
// when they arrive. It belongs behind the code under test, in place of the
// provider. Its methods are safe for concurrent use. Make one with NewMeter.
type Meter struct {
	limits []quota.Limit

	mu    sync.Mutex
	calls int64
	sums  map[quota.Window]int64
}

// NewMeter returns a meter of the limits, which may be stricter than the fleet's.
func NewMeter(limits []quota.Limit) *Meter {
	return &Meter{limits: limits, sums: map[quota.Window]int64{}}
}

// Call counts n calls that arrive now.
func (m *Meter) Call(n int64) {
	wall := time.Now().UnixNano()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls += n
	for _, l := range m.limits {
		m.sums[quota.WindowAt(l.Window, wall)] += n
	}
}

// Calls returns how many calls arrived.
func (m *Meter) Calls() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Check returns an error that names the worst window in which more calls arrived than
// its limit allows, or nil. Code that holds a permit for long before it calls can
// fail here although no permit was issued beyond the limit.
func (m *Meter) Check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var worst error
	var most float64 = 1
	for _, l := range m.limits {
		for w, n := range m.sums {
			ratio := float64(n) / max(1, float64(l.Permits))
			if w.Length == l.Window && n > l.Permits && ratio > most {
				most = ratio
				worst = fmt.Errorf("limittest: %d calls arrived in the window from %v, the limit is %v",
					n, time.Unix(0, w.Start()).UTC().Format(time.RFC3339Nano), l)
			}
		}
	}
	return worst
}
