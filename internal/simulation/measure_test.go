package simulation

import (
	"log/slog"
	"time"

	"github.com/quotient-limiter/quotient/internal/ntp"
)

// This file is what the hosts of kind Measured know of true time: the real
// ntp.Watch asks modelled servers over a modelled network, and corrects the real
// clock.Clock.

// timeServer is one NTP server of all hosts.
type timeServer struct {
	err      int64 // of its clock
	distance int64 // what it says that its error is at most
	lies     bool
	heard    bool // this host has had an answer of it
}

// newTimeServers makes three servers. Their errors lie within the bounds that
// they tell, but for one that may lie: by so much that it agrees with nobody. One
// that lies by less pulls the estimate, though never out of what another server
// holds possible (ntp.majority). It does not answer before the others have: those
// who answer first are a majority as long as they are the only ones.
func newTimeServers(w *world) []timeServer {
	all := make([]timeServer, 3)
	for i := range all {
		all[i].distance = 1*ms + w.Int64N(6*ms)
		all[i].err = w.Int64N(2*all[i].distance+1) - all[i].distance
	}
	if liar := &all[0]; w.IntN(3) == 0 {
		liar.lies = true
		if liar.err = 300*ms + w.Int64N(1000*ms); w.IntN(2) == 0 {
			liar.err = -liar.err
		}
	}
	return all
}

// suspended tells how long the machine has been suspended, as some operating
// systems do.
func (h *host) suspended() func() (time.Duration, bool) {
	if h.kind != Measured || h.r.IntN(2) == 0 {
		return nil
	}
	return func() (total time.Duration, known bool) {
		for _, s := range h.machine.sleeps {
			total += time.Duration(max(0, min(h.now, s.to)-s.from))
		}
		return total, true
	}
}

// measure starts to ask time servers, and joins when they have answered.
func (h *host) measure() {
	h.servers = newTimeServers(h.world)
	w, err := ntp.New(h.clock, []string{"a", "b", "c"}, ntp.MinInterval, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	h.ntp = w
	w.Begin(h.read().Mono)
	h.at(h.now, h.askTime)
}

// askTime asks the servers that are due, again and again.
func (h *host) askTime() {
	due, next := h.ntp.Due(h.read())
	for _, q := range due {
		h.query(q)
	}
	h.at(h.now+max(ms, min(next-h.read().Mono, 300*ms)), h.askTime)
	if _, known := h.clock.Measured(); known && h.attempt == 0 && !h.leaving {
		h.begin()
	}
}

// query asks one server. What is lost is given up after a while; the way back may
// take longer than the way there.
func (h *host) query(q ntp.Question) {
	s, asked := &h.servers[q.Server], h.read()
	there, back := 1+h.r.Int64N(8*ms), 1+h.r.Int64N(8*ms)
	if h.r.IntN(12) == 0 {
		back += h.r.Int64N(200 * ms)
	}
	if h.r.IntN(20) == 0 || s.lies && !(h.servers[1].heard && h.servers[2].heard) {
		h.at(h.now+retry, func() { h.ntp.Unanswered(h.read(), q) })
		return
	}
	told := epoch + h.now + there + s.err
	h.at(h.now+there+back, func() {
		at := h.read()
		s.heard = true
		trip := at.Mono - asked.Mono
		h.ntp.Answered(at, q, told-asked.Mono-trip/2, time.Duration(trip/2+s.distance))
	})
}

// setMeasured sets the operating system's clock, which corrected time is not to
// follow. Where a suspension looks the same and nobody can tell, it does until it
// is measured again; a clock that is set back during one would hide it.
func (h *host) setMeasured() {
	if len(h.machine.sleeps) == 0 {
		h.machine.sets = append(h.machine.sets, set{h.now, h.r.Int64N(4000*ms) - 2000*ms})
	}
}

// measuredError is how far operating systems' clocks are off where nobody relies
// on them.
const measuredError = 2000 * ms
