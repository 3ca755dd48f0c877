package shipped

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// epoch is true time 0 in nanoseconds since the Unix epoch: midnight of 2000-01-01, when
// bubbles begin. Every window starts then.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// machine is the clocks of an instance's host: the monotonic one, which stands still
// while the host is suspended, and the operating system's, which goes on.
type machine struct {
	w *world

	mu     sync.Mutex
	base   int64 // monotonic reading at true time 0
	rate   int64 // ppm by which the monotonic clock runs fast
	err    int64 // of the operating system's clock
	sleeps []span
}

// rateBound is the largest error of the monotonic clock's rate, in ppm.
const rateBound = 500

// margin is for drift that is still being slewed away.
const margin = 3 * ms

// followsLeads says that e covers a lead of up to clock.StepThreshold, as after a
// suspension, which corrected time follows slowly only.
func followsLeads(e int64) bool { return e > clock.Tolerance+margin }

// errorBound is how far operating systems' clocks may be off, so that corrected time is
// off by at most e.
func errorBound(e int64) int64 {
	if followsLeads(e) {
		return e - clock.Tolerance - margin
	}
	return e * 6 / 10
}

func newMachine(w *world, r *rand.Rand, bound int64) *machine {
	m := &machine{w: w, base: (1 + r.Int64N(1000)) * ms, rate: r.Int64N(2*rateBound+1) - rateBound, err: r.Int64N(2*bound+1) - bound}
	if r.IntN(3) == 0 { // the extremes break rules sooner
		m.err = bound
		if r.IntN(2) == 0 {
			m.err = -bound
		}
	}
	return m
}

// read reads both clocks.
func (m *machine) read() clock.Instant {
	t := m.w.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	run := t
	for _, s := range m.sleeps {
		run -= max(0, min(t, s.to)-s.from)
	}
	return clock.Instant{Mono: m.base + run + run*m.rate/1_000_000, Wall: epoch + t + m.err}
}

// sleep suspends the host for d from now on.
func (m *machine) sleep(d int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.w.now()
	m.sleeps = append(m.sleeps, span{now, now + d})
}
