package ntp

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// This file is what Run does at one instant. A simulation, which owns the time
// and the network, calls it instead of Run.

// Question is a question to a server that is under way.
type Question struct {
	Server int    // its place among those given to New
	jumps  uint32 // of the clock, when it was asked
	lead   int64  // of the system's clock before the monotonic one, then
}

// Begin starts measuring at a monotonic instant.
func (w *Watch) Begin(now int64) {
	w.jumps = w.clock.Jumps()
	w.patience = now + int64(patience)
}

// Due returns the questions to ask at the instant at, which count as under way
// until they are answered, and the monotonic instant at which to call it next.
func (w *Watch) Due(at clock.Instant) (ask []Question, next int64) {
	w.look(at)
	due, next := w.group.due(at.Mono)
	for _, i := range due {
		w.under++
		ask = append(ask, Question{i, w.jumps, at.Wall - at.Mono})
	}
	if !w.decided && at.Mono >= w.patience {
		w.conclude(at.Mono, false)
	}
	return ask, next
}

// look lets the clock see whether the machine slept, before an estimate says
// where the clock is after that, and forgets the samples of the time before. Without a
// jump nobody observes the clock before the first estimate, which is then taken at once.
func (w *Watch) look(at clock.Instant) {
	if w.decided || w.clock.Jumped(at) {
		w.clock.Observe(at)
	}
	if j := w.clock.Jumps(); j != w.jumps {
		w.jumps = j
		w.group.forget(at.Mono)
	}
}

// Answered takes a server's answer at the instant at: true time less the
// monotonic clock's is offset, to within distance.
func (w *Watch) Answered(at clock.Instant, q Question, offset int64, distance time.Duration) {
	w.took(at, result{q, answer{sample: sample{mono: at.Mono, offset: offset, distance: distance}}})
}

// Unanswered notes at the instant at that there was no answer in time.
func (w *Watch) Unanswered(at clock.Instant, q Question) {
	w.took(at, result{q, answer{problem: "no answer"}})
}
