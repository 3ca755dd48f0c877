package consumer

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// alarm is the one timer of a limiter. It runs only while callers wait. Make one with
// begin.
type alarm struct {
	fire func()

	// armed is the monotonic instant it is set for; math.MaxInt64 for none. Written
	// under mu. Read without it by callers that find it set early enough: whenever
	// it goes off, it asks again when to go off next.
	armed atomic.Int64

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func (a *alarm) begin(fire func()) {
	a.fire, a.timer = fire, time.AfterFunc(math.MaxInt64, a.ring)
	a.timer.Stop()
	a.armed.Store(math.MaxInt64)
}

// set makes sure that the alarm goes off at the instant wake or before;
// math.MaxInt64 means not at all, which lets an alarm that is set run out.
func (a *alarm) set(c *clock.Clock, wake int64) {
	if wake >= a.armed.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || wake >= a.armed.Load() {
		return
	}
	a.armed.Store(wake)
	for now := c.Mono(); ; {
		a.timer.Reset(time.Duration(max(0, wake-now)))
		read := now
		if now = c.Mono(); now-read <= slip {
			return
		}
	}
}

// slip is the longest accepted delay between reading the clock and setting the timer, in
// nanoseconds. After a longer one the timer is set again.
const slip = int64(time.Millisecond)

// isSet reports whether the alarm will go off. It is false while it goes off.
func (a *alarm) isSet() bool { return a.armed.Load() < math.MaxInt64 }

func (a *alarm) ring() {
	a.mu.Lock()
	a.armed.Store(math.MaxInt64)
	over := a.over
	a.mu.Unlock()
	if !over {
		a.fire()
	}
}

func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.timer.Stop()
}
