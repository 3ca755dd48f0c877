// Package alarm has the timer by which a limiter wakes up for those who wait. It goes off by the monotonic clock that
// the limiter reads, also where the process stood still between the reading and the setting.
package alarm

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// Alarm is one timer. It runs only while it is set. Begin comes first; after it all methods are safe for
// concurrent use.
type Alarm struct {
	fire func()

	// armed is the monotonic instant it is set for; clock.Forever for none. Written
	// under mu. Read without it by callers that find it set early enough: whenever
	// it goes off, it asks again when to go off next.
	armed atomic.Int64

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// Begin sets what is called when the alarm goes off: on a goroutine of its own, and not under a lock.
func (a *Alarm) Begin(fire func()) {
	a.fire, a.timer = fire, time.AfterFunc(math.MaxInt64, a.ring)
	a.timer.Stop()
	a.armed.Store(clock.Forever)
}

// Set makes sure that the alarm goes off at the instant wake or before;
// clock.Forever means not at all, which lets an alarm that is set run out.
func (a *Alarm) Set(c *clock.Clock, wake int64) {
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
		if wake <= now {
			// As a timer of 0 would. Go runs that at once within a bubble of synctest, and has crashed there with
			// the race detector.
			a.timer.Stop()
			go a.ring()
			return
		}
		a.timer.Reset(time.Duration(wake - now))
		read := now
		if now = c.Mono(); now-read <= slip {
			return
		}
	}
}

// slip is the longest accepted delay between reading the clock and setting the timer, in
// nanoseconds. After a longer one the timer is set again.
const slip = int64(time.Millisecond)

// IsSet reports whether the alarm will go off. It is false while it goes off.
func (a *Alarm) IsSet() bool { return a.armed.Load() < clock.Forever }

func (a *Alarm) ring() {
	a.mu.Lock()
	a.armed.Store(clock.Forever)
	over := a.over
	a.mu.Unlock()
	if !over {
		a.fire()
	}
}

// Stop ends it: it goes off no more, whatever is set.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	a.timer.Stop()
}
