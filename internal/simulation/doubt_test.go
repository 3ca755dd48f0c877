package simulation

import "github.com/quotient-limiter/quotient/internal/view"

// silence doubts the view after a silence: before anything of etcd's is taken.
func (h *host) silence() {
	if h.tracker.Silence(h.read(), h.freshness()) {
		h.stats.Doubts++
		h.checking = false
	}
}

// check looks whether etcd still has this instance's report, and the witness.
func (h *host) check() {
	id, probe := h.id, h.tracker.Sent(h.read())
	witness, asked := h.tracker.Witness(), h.reports.Asked()
	done := false
	h.at(h.now+retry, func() {
		if !done {
			h.checking = false
		}
	})
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			revision, cluster := h.etcd.revision(), h.etcd.cluster
			found, key := h.etcd.reported(id), h.etcd.key(witness)
			h.answer(func() {
				done, h.checking = true, false
				if h.id != id || !h.registered || h.relist {
					return
				}
				h.silence()
				kept, lost := h.reports.Kept(asked, found.revision, found.value)
				reopen, gap := h.tracker.Check(probe, revision, cluster, view.Found{Kept: kept, Witness: key})
				switch {
				case lost && !h.trick(LostUnseen) || gap:
					h.stats.Unlike++
					h.gap()
				case reopen:
					h.open()
				}
				h.prove()
			})
		})
	})
}
