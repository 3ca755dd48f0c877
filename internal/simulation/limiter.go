package simulation

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/safeguard"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what consumer does around the gate and the warrant: it answers
// the gate's questions, and takes permits by the segment or through the gate.

// limiter is what the host's limiter remembers.
type limiter struct {
	later     func()          // a call of the gate that was put off
	asked     clock.Instant   // when progress was asked for last
	wall      int64           // the instant whose windows the ledger is at
	corrected int64           // corrected time, as last read
	binds     []time.Duration // the lengths that bind there
	grants    []grant
	waits     []*window.Waiter
}

// grant is a number of permits issued at once.
type grant struct {
	at      int64 // true time
	wall    int64 // corrected wall time; it tells the windows
	permits int64
	id      string
	// first and last are the oldest and the newest state that the history held.
	first, last int
	binds       []time.Duration
	stale       bool // without a recent proof: held, under the rule hold
}

// Offset implements window.Shares.
func (h *host) Offset() int64 { return h.clock.Offset() }

// Lengths implements window.Shares.
func (h *host) Lengths(now int64) []time.Duration {
	wall := h.clock.WallAt(now)
	if wall < h.corrected && h.mutant == nil {
		h.wrong("corrected time went back by %v", time.Duration(h.corrected-wall))
	}
	h.corrected = wall
	// While corrected time stands still the ledger's windows do too.
	if wall = now + h.Offset(); wall > h.wall || h.off().Off(safeguard.WindowsForward) {
		h.wall = wall
	}
	h.binds = h.warrant.Lengths(now, h.Offset())
	return h.binds
}

// Bound implements window.Shares.
func (h *host) Bound(w quota.Window, now int64) int64 {
	return h.warrant.Bound(w, now, h.Offset()).Permits
}

// Terms implements window.Shares.
func (h *host) Terms(at clock.Instant) window.Terms { return h.warrant.Terms(at, h.clock) }

// changed tells the gate that shares may have changed: at once, or after a pause
// between two statements in which others take permits.
func (h *host) changed() {
	h.flush()
	if h.kind == Calm || h.r.IntN(8) > 0 {
		h.gate.Changed(h.read())
		h.ringAtEnd()
		return
	}
	h.later = func() {
		h.gate.Changed(h.read())
		h.ringAtEnd()
	}
	h.at(h.now+1+h.r.Int64N(30*ms), h.flush)
}

// flush makes the call that was put off.
func (h *host) flush() {
	if f := h.later; f != nil {
		h.later = nil
		f()
	}
}

// ringAtEnd is the timer that would end a proof, were it not compared in the
// reading that admits.
func (h *host) ringAtEnd() {
	if !h.off().Off(safeguard.ComparedInReading) {
		return
	}
	now := h.read()
	age := h.warrant.Rules(now.Mono, h.Offset()).Freshness
	if proof, ok := h.warrant.Proof(); ok {
		h.at(h.now+max(0, proof.Mono+int64(age)-now.Mono), func() {
			if p, _ := h.warrant.Proof(); p == proof {
				h.warrant.Expire()
				h.gate.Changed(h.read())
			}
		})
	}
}

// ask asks for permits, again and again.
func (h *host) ask() {
	every := 80 * ms
	if h.kind == Calm {
		every = 10 * ms
	}
	h.at(h.now+1+h.r.Int64N(every), h.ask)
	h.take1()
}

// take1 asks for permits once.
func (h *host) take1() {
	if h.shut {
		return
	}
	now := h.read()
	if n := h.r.IntN(16); h.kind == Calm || n > 5 {
		h.takeUpTo(now, math.MaxInt32)
	} else if n > 3 {
		h.takeUpTo(now, 1+h.r.Int64N(6))
	} else if n > 2 {
		h.takeAndReturn(now, 1+h.r.Int64N(3))
	} else if n > 0 {
		h.wait(now, 1+h.r.Int64N(3))
	} else {
		h.gate.Tick(now)
	}
	h.starved(now)
}

// takeUpTo is Limiter.TryTakeUpTo.
func (h *host) takeUpTo(now clock.Instant, n int64) {
	s := h.gate.Segment()
	if s.Open(now.Mono) && (!s.Strict || s.WallValid(now)) {
		h.grant(s.TakeUpTo(now.Mono, n))
		return
	}
	h.grant(h.gate.TakeUpTo(now, n))
}

// takeAndReturn is Limiter.Take, and now and then Limiter.Return.
func (h *host) takeAndReturn(now clock.Instant, n int64) {
	s := h.gate.Segment()
	grant, ok := s.Grant, false
	if !s.Strict || s.WallValid(now) {
		ok = s.Take(now.Mono, n)
	}
	if !ok && (!s.Open(now.Mono) || s.Strict && !s.WallValid(now)) {
		grant, ok = h.gate.Take(now, n)
	}
	if !ok {
		return
	}
	h.grant(n)
	last := len(h.grants) - 1
	if h.r.IntN(2) == 0 && h.gate.Return(h.read(), grant, n) {
		h.grants[last].permits -= n
	}
}

// wait queues for permits; they come at some window's start.
func (h *host) wait(now clock.Instant, n int64) {
	w := &window.Waiter{}
	deadline := now.Mono + h.r.Int64N(2*h.settle())
	switch _, v, _ := h.gate.Wait(now, w, n, deadline); v {
	case window.Granted:
		h.grant(n)
	case window.Queued:
		h.waits = append(h.waits, w)
		h.tickAt(h.gate.Wake())
		if len(h.waits) > 4 {
			h.gate.Cancel(h.read(), h.waits[0])
			h.waits = h.waits[1:]
		}
	}
}

// tickAt is the limiter's alarm.
func (h *host) tickAt(wake int64) {
	if wake == window.Forever {
		return
	}
	h.at(h.now+max(1, wake-h.read().Mono), func() {
		if !h.shut {
			h.gate.Tick(h.read())
		}
	})
}

// decided is told what became of a waiter.
func (h *host) decided(w *window.Waiter, _ window.Grant, v window.Verdict) {
	if v == window.Granted {
		h.grant(w.N())
	}
}

// grant notes permits.
func (h *host) grant(n int64) {
	if n <= 0 {
		return
	}
	g := grant{at: h.now, wall: h.wall, permits: n, id: h.id, first: h.first, last: h.last, binds: h.binds}
	if h.kind == Hold || h.kind == Split {
		now := h.read()
		mono, wall := h.warrant.FreshUntil(h.warrant.Rules(now.Mono, h.Offset()), h.clock)
		g.stale = now.Mono >= mono || now.Wall >= wall
	}
	h.grants = append(h.grants, g)
}

func (h *host) close() {
	h.shut = true
	h.gate.Close()
}
