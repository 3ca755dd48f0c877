package simulation

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what consumer does around the gate and the planner: it passes
// plans on, and takes permits by the segment or through the gate.

// limiter is what the host's limiter remembers.
type limiter struct {
	later     func()          // a call of the gate that was put off
	planned   string          // the incarnation for which the gate plans, as yet
	asked     clock.Instant   // when progress was asked for last
	wall      int64           // corrected time, by which the ledger's windows go
	corrected int64           // corrected time, as last read
	binds     []time.Duration // the lengths that bind there
	windows   []quota.Window  // the ledger's
	stopped   []quota.Window  // of these, those that time has to come back to
	grants    []grant
	waits     []*window.Waiter
	serial    uint64 // of the newest permit that was given back or settled
	owed      int64  // what calls have cost beyond their permits, and is not paid
	ringsAt   int64  // the gate's alarm for that
}

// grant is a number of permits issued at once.
type grant struct {
	at      int64          // true time
	wall    int64          // corrected wall time; it tells the windows
	stopped []quota.Window // but for these
	permits int64
	id      string
	// first and last are the oldest and the newest state that the history held.
	first, last int
	binds       []time.Duration
	stale       bool // without a recent proof: held, under the rule hold
}

// Offset returns corrected wall time minus monotonic time.
func (h *host) Offset() int64 { return h.clock.Offset() }

// Plan implements window.Planner.
func (h *host) Plan(at clock.Instant) window.Plan {
	plan := h.planner.Plan(at)
	h.planned = h.id
	wall := h.clock.WallAt(at.Mono)
	if wall < h.corrected && h.mutant == nil {
		h.wrong("corrected time went back by %v", time.Duration(h.corrected-wall))
	}
	h.corrected = wall
	h.wall = at.Mono + plan.Offset
	h.binds = nil
	for _, l := range plan.Limits {
		h.binds = append(h.binds, l.Window.Length)
	}
	h.roll()
	return plan
}

// Foresee implements window.Planner.
func (h *host) Foresee(mono int64) window.Plan { return h.planner.Foresee(mono) }

// roll moves the windows on as the ledger does: while corrected time stands still
// those that have begun stand still too.
func (h *host) roll() {
	h.stopped = nil
	h.windows = slices.DeleteFunc(h.windows, func(w quota.Window) bool {
		return h.wall >= w.End() && !slices.Contains(h.binds, w.Length)
	})
	for _, l := range h.binds {
		w := quota.WindowAt(l, h.wall)
		i := slices.IndexFunc(h.windows, func(o quota.Window) bool { return o.Length == l })
		switch {
		case i < 0:
			h.windows = append(h.windows, w)
		case h.windows[i].Index <= w.Index || h.trick(RunsBack):
			h.windows[i] = w
		default:
			h.stopped = append(h.stopped, h.windows[i])
		}
	}
}

// window is the window of a length that a grant is of.
func (g *grant) window(l time.Duration) quota.Window {
	for _, w := range g.stopped {
		if w.Length == l {
			return w
		}
	}
	return quota.WindowAt(l, g.wall)
}

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
	timed, ok := any(&h.planner).(interface{ Expire() })
	if !ok || !h.trick(TimerRings) {
		return
	}
	now := h.read()
	age := h.planner.Rules(now.Mono).Freshness
	if proof, ok := h.planner.Proved(); ok {
		h.at(h.now+max(0, proof.Mono+int64(age)-now.Mono), func() {
			if p, _ := h.planner.Proved(); p == proof {
				timed.Expire()
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
	} else if n > 1 {
		h.wait(now, max(1, h.r.Int64N(12)-8)) // few want more than one: to look far ahead for them takes the most time
	} else {
		h.gate.Tick(now)
	}
	h.starved(now)
}

// takeUpTo is Limiter.TryTake.
func (h *host) takeUpTo(now clock.Instant, n int64) {
	s := h.gate.Segment()
	if s.Open(now.Mono) && (!s.Strict || s.WallValid(now)) {
		h.grant(s.TakeUpTo(now.Mono, n))
		return
	}
	_, got := h.gate.TakeUpTo(now, n)
	h.grant(got)
}

// takeAndReturn is Limiter.Take, and now and then Permit.Release or Permit.Settle.
func (h *host) takeAndReturn(now clock.Instant, n int64) {
	s := h.gate.Segment()
	grant, ok := s.Grant, false
	if !s.Strict || s.WallValid(now) {
		ok = s.Take(now.Mono, n)
	}
	if !ok && (!s.Open(now.Mono) || s.Strict && !s.WallValid(now)) {
		var v window.Verdict
		grant, v = h.gate.Enter(now, nil, n, 0)
		ok = v == window.Granted
	}
	if !ok {
		return
	}
	h.grant(n)
	last := len(h.grants) - 1
	switch h.r.IntN(3) {
	case 0:
		h.giveBack(last, grant, n)
	case 1:
		h.at(h.now+h.r.Int64N(600*ms), func() { h.giveBack(last, grant, n) })
	case 2:
		h.serial++
		excess := int64(1 + h.serial%5)
		h.owed += excess
		h.gate.Correct(h.read(), grant, h.serial, n, n+excess)
		h.paid()
	}
}

// gate notes what is paid of the debt: it counts in the window in which it is paid.
type gate struct {
	*window.Gate
	h *host
}

func (g gate) Tick(at clock.Instant)    { g.Gate.Tick(at); g.h.paid() }
func (g gate) Changed(at clock.Instant) { g.Gate.Changed(at); g.h.paid() }
func (g gate) Proved(at clock.Instant)  { g.Gate.Proved(at); g.h.paid() }

func (g gate) Enter(at clock.Instant, w *window.Waiter, n, deadline int64) (window.Grant, window.Verdict) {
	defer g.h.paid()
	return g.Gate.Enter(at, w, n, deadline)
}

func (g gate) TakeUpTo(at clock.Instant, n int64) (*window.Segment, int64) {
	defer g.h.paid()
	return g.Gate.TakeUpTo(at, n)
}

func (g gate) Cancel(at clock.Instant, w *window.Waiter) bool {
	defer g.h.paid()
	return g.Gate.Cancel(at, w)
}

func (g gate) Refund(at clock.Instant, grant window.Grant, serial uint64, n int64) bool {
	defer g.h.paid()
	_, back := g.Correct(at, grant, serial, n, 0)
	return back
}

func (g gate) Borrow(at clock.Instant, host string, loan protocol.Loan, shares []int64) int64 {
	defer g.h.paid()
	return g.Gate.Borrow(at, host, loan, shares)
}

// paid notes what was paid just now, and sets the alarm for the rest.
func (h *host) paid() {
	if h.owed == 0 || h.shut {
		return
	}
	left := h.gate.Usage(h.read()).Debt
	h.grant(h.owed - left)
	h.stats.Paid += int(h.owed - left)
	h.owed = left
	if wake := h.gate.Wake(); wake != h.ringsAt {
		h.ringsAt = wake
		h.tickAt(wake)
	}
}

// giveBack is Permit.Release of the permits of a grant.
func (h *host) giveBack(number int, grant window.Grant, n int64) {
	h.serial++
	if h.gate.Refund(h.read(), grant, h.serial, n) {
		h.grants[number].permits -= n
		if h.trick(ReturnedTwice) {
			h.gate.Refund(h.read(), grant, h.serial+1<<32, n)
		}
	}
}

// drain is Limiter.PauseUntil: the application wants nothing for a while.
func (h *host) drain(d int64) {
	h.own = max(h.own, h.read().Mono+d)
	h.pause(false)
}

// wait queues for permits; they come at some window's start.
func (h *host) wait(now clock.Instant, n int64) {
	w := &window.Waiter{}
	deadline := now.Mono + h.r.Int64N(2*h.settle())
	switch _, v := h.gate.Enter(now, w, n, deadline); v {
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
	g := grant{at: h.now, wall: h.wall, permits: n, id: h.planned, first: h.first, last: h.last, binds: h.binds, stopped: h.stopped}
	g.stale = h.holds()
	h.grants = append(h.grants, g)
	h.mayGrant()
}

// holds reports whether permits that are issued now are issued without a recent
// proof, as the rule hold allows. A change of the rule counts from when the gate
// is told of it.
func (h *host) holds() bool {
	if h.kind != Hold && h.kind != Split && h.kind != Switch {
		return false
	}
	now := h.read()
	rules := h.planner.Rules(now.Mono)
	mono, wall := h.planner.FreshUntil(rules)
	return (now.Mono >= mono || now.Wall >= wall) && (rules.Outage == quota.OutageHold || h.later != nil)
}

// mayGrant checks what else must be so when permits are issued.
func (h *host) mayGrant() {
	now := h.read()
	if until := h.longest(); now.Mono < until {
		h.wrong("issues permits %v before the end of a pause", time.Duration(until-now.Mono))
	}
	if bound, known := h.clock.ErrorAt(now.Mono); known && h.mutant == nil {
		if off := now.Mono + h.Offset() - epoch - h.now; max(off, -off) > int64(bound)+ms {
			h.wrong("corrected time is off by %v, and is said to be by at most %v", time.Duration(off), bound)
		}
	}
}

func (h *host) close() {
	h.shut = true
	h.gate.Close()
}
