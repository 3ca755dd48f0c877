package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// host is one process on a machine of its own, from start to end. It does what
// coordinator.Session and consumer.Limiter do between etcd and the pure core:
// session.go and limiter.go have the two halves.
type host struct {
	*world
	r         *rand.Rand
	number    int
	name      string // its incarnations are numbered below it
	announces bool   // its join names the first window
	leaving   bool   // it is on its way out, or dead
	dead      bool   // nothing happens any more
	shut      bool   // it issues nothing any more

	machine hostClock
	stalls  []span // the process does not run
	cuts    []span // nothing comes through from etcd
	hangs   []span // nothing comes by the watch

	clock   *clock.Clock
	ntp     *ntp.Watch   // of kind Measured
	servers []timeServer // what it asks
	planner share.Planner
	gate    gate
	tracker view.Tracker
	reports view.Reports

	place
	limiter
	pauses

	disk
	before  *host         // the process whose place it takes; nil if there was none
	started clock.Instant // when it began
}

// place is what coordinator.membership remembers.
type place struct {
	id         string   // of this incarnation; empty before there was one
	keys       []string // under the present lease
	lapsed     bool     // the lease is gone, and there will be none
	value      quota.Instance
	registered bool
	attempt    int // numbers the joins, so that a late answer is known
	wrote      int // the attempt whose key is known to be written
	watch      int // numbers the watches
	stream     *stream
	policy     *quota.Policy
	proved     int64 // monotonic instant of the newest proof, 0 if none
	behind     int64
	relist     bool
	created    int64 // revision of its key's first write
	listing    int   // numbers the listings after a gap
	reporting  int   // numbers the reports
	checking   bool
	until      int64
	first      int   // the state that the history began with
	last       int   // the newest state that it holds
	took       bool  // it goes on with its predecessor's incarnation
	knew       int   // the same when the outage of all of etcd began
	heldSince  int64 // monotonic instant from which on it holds that
}

// startHost starts a process. r drives it and its network.
func (w *world) startHost(r *rand.Rand, announces bool) *host {
	h := w.newHost(r, announces)
	h.machine = newHostClock(r, w.osError())
	h.start()
	return h
}

func (w *world) newHost(r *rand.Rand, announces bool) *host {
	n := len(w.hosts)
	h := &host{world: w, r: r, number: n, announces: announces, name: fmt.Sprintf("i%d", n)}
	h.seen = map[sight]int64{}
	w.hosts = append(w.hosts, h)
	return h
}

// start starts the process on its machine.
func (h *host) start() {
	w := h.world
	h.started = h.read()
	h.clock = clock.Started(h.started, h.suspended())
	h.planner.Clock, h.planner.Lends = h.clock, true
	h.gate = gate{window.NewGate(h, h.decided, nil), h}
	h.gate.Lent = h.lend
	h.tracker.ReadBy(&w.reader)
	if w.kind == Measured {
		h.measure()
		return
	}
	h.begin()
}

// begin starts what a process does all the time.
func (h *host) begin() {
	w := h.world
	if c := h.predecessor(); c != nil {
		h.resume(c)
	} else {
		h.join()
	}
	h.at(w.now+1, h.keep)
	h.at(w.now+1, h.probe)
	h.at(w.now+1, h.ask)
	if w.sharing.rule == quota.ShareDemand {
		h.at(w.now+1, h.demand)
		h.at(w.now+1, h.divide)
	}
	if w.trick(KeptAliveProves) {
		h.at(w.now+1, h.keepAlive)
	}
}

// at plans what the host does.
func (h *host) at(t int64, do func()) { h.put(item{at: t, host: h, do: do}) }

// read reads the machine's clocks.
func (h *host) read() clock.Instant { return h.machine.read(h.now) }

// delay is a network delay: short mostly, now and then long.
func (h *host) delay() int64 {
	switch n := h.r.IntN(16); {
	case h.kind == Calm || n > 2:
		return 1 + h.r.Int64N(6*ms)
	case n == 0:
		return 1 + h.r.Int64N(300*ms)
	}
	return 1 + h.r.Int64N(60*ms)
}

// transit returns when a message arrives that is sent now; ok is false if it is
// lost.
func (h *host) transit() (at int64, ok bool) {
	at = h.now + h.delay()
	if through := blocked(at, h.cuts); through > at {
		return through, h.r.IntN(2) == 0
	}
	return at, h.kind == Calm || h.r.IntN(64) > 0
}

// call sends a request to any member. serve runs there, and may answer.
func (h *host) call(serve func(m int)) {
	m := h.r.IntN(len(h.etcd.members))
	if at, ok := h.transit(); ok {
		h.world.at(at, func() { serve(m) })
	}
}

// answer sends an answer to the host.
func (h *host) answer(do func()) {
	if at, ok := h.transit(); ok && !h.etcd.away() {
		h.at(at, do)
	}
}

// stall lets the process not run for a while. On waking it asks for permits
// first of all, or last.
func (h *host) stall(d int64) {
	s := span{h.now, h.now + d}
	h.stalls = append(h.stalls, s)
	first := int8(-1)
	if h.r.IntN(3) == 0 {
		first = 1
	}
	h.put(item{at: s.to, first: first, host: h, do: h.take1})
}

// sleep suspends the machine: a stall in which the monotonic clock stands still.
func (h *host) sleep(d int64) {
	h.machine.sleeps = append(h.machine.sleeps, span{h.now, h.now + d})
	h.stall(d)
}

// spanOf is a part of true time from now on.
func (w *world) spanOf(d int64) span { return span{w.now, w.now + d} }

// settle is the newest policy's S, or the default.
func (w *world) settle() int64 {
	if p := w.etcd.view().Policy; p != nil {
		return int64(p.Settle)
	}
	return int64(quota.DefaultSettle)
}

func wallTime(t int64) time.Time { return time.Unix(0, epoch+t) }
