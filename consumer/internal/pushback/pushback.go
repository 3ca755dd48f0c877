// Package pushback passes on to limiters what providers answer when they are
// asked too much: wait for so long.
package pushback

import (
	"sync"
	"time"
)

// DefaultMost is the longest pause that a provider is granted where the
// application does not say otherwise.
const DefaultMost = 5 * time.Minute

// Drainer is the part of a *consumer.Limiter that is needed here.
type Drainer interface {
	comparable
	Drain(until time.Time)
}

// Pauses remembers until when each limiter pauses, because answers overtake one
// another: an early "wait a second" that arrives late must not end the minute
// that a later answer asked for. The zero value is ready; safe for concurrent use.
type Pauses[L Drainer] struct {
	mu    sync.Mutex
	until map[L]time.Time
}

// Ask makes the limiter pause for d from now on, but for no longer than most,
// unless it pauses for longer already. Zero for most means DefaultMost, less
// than zero that no pause is granted at all.
func (p *Pauses[L]) Ask(l L, now time.Time, d, most time.Duration) {
	if most == 0 {
		most = DefaultMost
	}
	if d = min(d, most); d <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, end := range p.until {
		if !end.After(now) {
			delete(p.until, other)
		}
	}
	end := now.Add(d)
	if !end.After(p.until[l]) {
		return
	}
	if p.until == nil {
		p.until = map[L]time.Time{}
	}
	p.until[l] = end
	// Under the lock, so that the limiter sees pauses in the order in which they
	// were compared.
	l.Drain(end)
}
