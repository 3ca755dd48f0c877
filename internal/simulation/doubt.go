package simulation

// silence doubts the view after a silence: before anything of etcd's is taken.
func (h *host) silence() {
	if h.tracker.Silence(h.read(), h.freshness()) {
		h.stats.Doubts++
		h.checking = false
	}
}

// check looks whether etcd still has what this instance wrote.
func (h *host) check() {
	id, created, listed, probe, report := h.id, h.created, h.listed, h.tracker.Sent(h.read()), h.published.Newest()
	done := false
	h.at(h.now+retry, func() {
		if !done {
			h.checking = false
		}
	})
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			revision, cluster := h.etcd.revision(), h.etcd.cluster
			kept, reported := int64(0), h.etcd.reported(id).revision
			if h.etcd.created(id) == created {
				kept = created
				if h.etcd.modified(id) == listed {
					kept = listed
				}
			}
			h.answer(func() {
				done, h.checking = true, false
				if h.id != id || !h.registered || h.relist {
					return
				}
				h.silence()
				lost := reported < report && !h.trick(LostUnseen)
				reopen, gap := h.tracker.Check(probe, revision, cluster, max(kept, report))
				switch {
				case lost || gap:
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
