package histories

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// epoch is true time 0 in nanoseconds since the Unix epoch: midnight of 2000-01-01, when
// bubbles begin. Every window starts then.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// machine is a host's clocks: the monotonic one, which stands still while the host is
// suspended, and the operating system's, which goes on, and which somebody may set.
type machine struct {
	mu     sync.Mutex
	base   int64 // monotonic reading at true time 0
	rate   int64 // ppm by which the monotonic clock runs fast
	err    int64 // of the operating system's clock at true time 0
	sleeps []span
	sets   []set
	backs  []span // the operating system's clock is far back
}

// set is the operating system's clock set by delta at a true time.
type set struct{ at, delta int64 }

// rateBound is the largest error of the monotonic clock's rate, in ppm.
const rateBound = 500

// margin is for drift that is still being slewed away.
const margin = 3 * ms

// measuredError is how far operating systems' clocks are off where nobody relies on them.
const measuredError = 2000 * ms

// osError is how far operating systems' clocks may be off. Corrected time follows a lead
// of up to clock.StepThreshold, as after a short suspension, slowly only.
func (p *plan) osError() int64 {
	switch {
	case p.kind == measured:
		return measuredError
	case p.followsLeads():
		return p.e - clock.Tolerance - margin
	}
	return p.e * 6 / 10
}

// followsLeads says that e covers a lead that corrected time follows slowly.
func (p *plan) followsLeads() bool { return p.e > clock.Tolerance+margin }

func newMachine(r *rand.Rand, bound int64) *machine {
	m := &machine{base: (1 + r.Int64N(1000)) * ms, rate: r.Int64N(2*rateBound+1) - rateBound, err: r.Int64N(2*bound+1) - bound}
	if r.IntN(3) == 0 { // the extremes break rules sooner
		m.err = bound
		if r.IntN(2) == 0 {
			m.err = -bound
		}
	}
	return m
}

// at reads both clocks at a true time.
func (m *machine) at(t int64) clock.Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	run, wall := t-m.slept(t), epoch+t+m.err
	for _, s := range m.sets {
		if t >= s.at {
			wall += s.delta
		}
	}
	return clock.Instant{Mono: m.base + run + run*m.rate/1_000_000, Wall: wall}
}

func (m *machine) slept(t int64) (d int64) {
	for _, s := range m.sleeps {
		d += max(0, min(t, s.to)-s.from)
	}
	return d
}

// sleep suspends the host, if it can be told from what was done to its clock: after that
// nothing is left to tell a suspension by.
func (m *machine) sleep(s span) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := len(m.sleeps); len(m.backs) > 0 || n > 0 && m.sleeps[n-1].to >= s.from {
		return false
	}
	m.sleeps = append(m.sleeps, s)
	return true
}

// setClock sets the operating system's clock: to another error, or far back and right
// again later.
func (m *machine) setClock(p *plan, r *rand.Rand, now int64) {
	bound := p.osError()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case len(m.backs) > 0 || p.kind == measured && len(m.sleeps) > 0:
	case p.kind == measured: // corrected time is not to follow
		m.sets = append(m.sets, set{now, r.Int64N(4000*ms) - 2000*ms})
	case r.IntN(2) == 0 || len(m.sleeps) > 0:
		err := r.Int64N(2*bound+1) - bound
		for _, s := range m.sets {
			err -= s.delta
		}
		m.sets = append(m.sets, set{now, err - m.err})
	default:
		back, until := -(p.e + r.Int64N(10_000*ms)), now+1+r.Int64N(1000*ms)
		m.sets = append(m.sets, set{now, back}, set{until, -back})
		m.backs = append(m.backs, span{now, until})
	}
}

// setAhead sets the operating system's clock as far ahead as may be.
func (m *machine) setAhead(p *plan, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.backs) > 0 || p.kind == measured {
		return
	}
	err := p.osError()
	for _, s := range m.sets {
		err -= s.delta
	}
	m.sets = append(m.sets, set{now, err - m.err})
}

// reader is what one process reads of its machine's clocks: as long as it stands still it
// reads none, so what its goroutines do then is what they did just before.
type reader struct {
	w *world
	*machine

	mu    sync.Mutex
	stops []span
}

// now is the true time at which the process runs.
func (r *reader) now() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.w.now()
	for _, s := range r.stops {
		if s.from <= t && t < s.to {
			t = s.from
		}
	}
	return t
}

func (r *reader) read() clock.Instant { return r.at(r.now()) }

// stop lets the process stand still.
func (r *reader) stop(s span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, s)
}

// stopped reports whether it stood still in some of a span.
func (r *reader) stopped(from, to int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stops {
		if s.from <= to && from <= s.to {
			return true
		}
	}
	return false
}

// late returns how late a timer may go off at a time: one that was set while the process
// stood still, in which its goroutines run on here, counts from that moment.
func (r *reader) late(at int64) (most time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stops {
		if s.to <= at {
			most = max(most, time.Duration(s.to-s.from))
		}
	}
	return most
}

// until returns t, or when the process goes on if it stands still then.
func (r *reader) until(t int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return blocked(t, r.stops)
}
