package simulation

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
)

// probe is a linearizable read, again and again.
func (h *host) probe() {
	h.clock.Observe(h.read())
	pause := min(int64(300*time.Millisecond), h.freshness()/5)
	h.at(h.now+pause*3/4+h.r.Int64N(1+pause/2), h.probe)
	if !h.registered || h.relist {
		return
	}
	probe, id, sent := h.tracker.Sent(h.read()), h.id, h.read()
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			if h.r.IntN(3) == 0 { // others write all the time
				h.etcd.commit(change{})
			}
			revision, cluster, n := h.etcd.revision(), h.etcd.cluster, h.etcd.current()
			h.world.at(h.now+h.etcd.members[m].lag, func() {
				h.answer(func() { h.answered(id, probe, sent, revision, cluster, n) })
			})
		})
	})
}

// answered takes a probe's answer.
func (h *host) answered(id string, probe view.Probe, sent clock.Instant, revision int64, cluster uint64, n int) {
	if h.id != id || !h.registered || h.relist {
		return
	}
	now := h.read()
	h.silence()
	if h.trick(SameCountProves) && h.looksLike(n) {
		h.accept(sent)
	}
	if h.tracker.Answer(probe, revision, cluster) {
		h.stats.Backwards++
		h.gap()
		return
	}
	if h.trick(DatedByArrival) && h.tracker.Position() >= revision {
		h.accept(now)
	}
	h.prove()
	if h.tracker.Unchecked() && !h.checking {
		h.checking = true
		h.check()
	}
	if h.tracker.Behind() {
		h.lag(now.Mono)
	}
}

// lag asks the watch how far it is, and opens another when it hangs.
func (h *host) lag(now int64) {
	if h.behind == 0 {
		h.behind = now
	}
	if now-h.behind > h.freshness()/2 {
		h.behind = now
		h.stats.Rewatched++
		h.open()
		return
	}
	s := h.stream
	if s == nil {
		return
	}
	asked := h.read()
	h.asked = asked
	if at, ok := h.transit(); ok {
		h.world.at(at, s.progress)
	}
}

// progressed is where RequestProgress alone would count as a proof.
func (h *host) progressed() {
	if h.trick(ProgressProves) && h.asked != (clock.Instant{}) {
		h.accept(h.asked)
	}
}

// prove passes the newest proof on.
func (h *host) prove() {
	if !h.tracker.Behind() {
		h.behind = 0
	}
	proof, ok := h.tracker.Proof()
	if !ok || proof.Mono <= h.proved {
		return
	}
	h.accept(proof)
}

func (h *host) accept(proof clock.Instant) {
	if proof.Mono > h.proved {
		h.proved = proof.Mono
	}
	h.flush()
	if h.planner.Prove(proof) {
		h.changed()
		return
	}
	h.gate.Proved(h.read())
	h.ringAtEnd()
}

// looksLike compares the number of keys and the highest revision.
func (h *host) looksLike(n int) bool {
	mine, theirs := h.etcd.states[h.last].keys, h.etcd.states[n].keys
	highest := func(keys []view.Key) (r int64) {
		for i := range keys {
			r = max(r, keys[i].Revision)
		}
		return r
	}
	return len(mine) == len(theirs) && highest(mine) == highest(theirs)
}

// keepAlive is answered by a member alone, whatever it knows.
func (h *host) keepAlive() {
	h.at(h.now+h.freshness()/4, h.keepAlive)
	id, sent := h.id, h.read()
	h.call(func(int) {
		h.answer(func() {
			if h.registered && h.id == id {
				h.accept(sent)
			}
		})
	})
}
