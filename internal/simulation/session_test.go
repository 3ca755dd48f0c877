package simulation

import (
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file, and listing.go, probing.go, doubt.go and leaving.go, are what
// coordinator does between etcd and the tracker: register, watch, probe, list anew
// after a gap, doubt after a silence, register anew without a key, leave. The real
// one has goroutines and etcd's client; the decisions are the same.

// retry is how long an answer is waited for.
const retry = 250 * ms

// join reads the policy, to announce the first window, and then registers.
func (h *host) join() {
	h.attempt++
	attempt := h.attempt
	h.at(h.now+2*retry+h.r.Int64N(100*ms), func() {
		if !h.registered && h.attempt == attempt && h.wrote != attempt && !h.leaving {
			h.join()
		}
	})
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			p := h.etcd.view().Policy
			h.answer(func() { h.register(attempt, p) })
		})
	})
}

// register writes the key of a new incarnation, and then lists.
func (h *host) register(attempt int, p *quota.Policy) {
	if h.attempt != attempt || h.leaving {
		return
	}
	i := quota.Instance{ID: idOf(h.name, attempt), Name: h.name, Weight: 1 + int64(h.number%3)}
	if h.trick(SameID) {
		i.ID = h.name
	}
	if h.announces && p != nil {
		i.From, i.Borrows = protocol.FirstWindow(h.clock.WallAt(h.read().Mono), p), true
	}
	sent := h.read()
	h.call(func(int) {
		h.etcd.write(func() {
			if h.lapsed || h.etcd.has(i.ID) && !h.trick(SameID) {
				return // the lease is gone, or the transaction's condition fails
			}
			h.keys = append(h.keys, i.ID)
			m := mark{id: i.ID, created: h.etcd.commit(change{put: []quota.Instance{i}}), cluster: h.etcd.cluster, sent: sent}
			m.newest, m.revision = m.created, m.created
			m.report = h.newReport(m.id, randomDemand(h.r))
			m.report.revision = m.created
			h.etcd.reports = append(h.etcd.reports, m.report)
			h.answer(func() {
				going := func() bool { return h.attempt == attempt && !h.leaving }
				if !going() {
					return
				}
				h.wrote = attempt
				list := func(m mark) {
					h.pages(m, going, func(m mark, keys []view.Key, n int) {
						h.id, h.value, h.registered, h.created, h.key = i.ID, i, true, m.created, m.created
						h.list(m, keys, n)
					})
				}
				if h.kind == Calm || h.r.IntN(4) > 0 {
					list(m)
					return
				}
				h.at(h.now+1+h.r.Int64N(1000*ms), func() { h.touch(m, going, list) }) // a storm of joins is waited out
			})
		})
	})
}

// list starts the history from a listing at a mark, where etcd's state was n.
func (h *host) list(m mark, keys []view.Key, n int) {
	at := h.read()
	if h.trick(ListedWhenSent) {
		at = m.sent
	}
	v := h.tracker.List(m.sent, m.asOf(), m.cluster, keys)
	h.tracker.Wrote(m.revision)
	h.reports.Reset(m.revision, m.report.value)
	from, since := at, at.Mono
	if m.begin.Revision != 0 {
		from, since = h.started, m.begin.At
	}
	v.Alone = true // budgets are no part of these histories
	h.planner.Reset(from, since, h.id, v)
	h.policy, h.proved, h.behind, h.relist, h.checking = v.Policy, 0, 0, false, false
	h.heed(h.backoff.List(m.asOf(), keys, h.asksIn))
	h.first, h.last, h.heldSince = n, n, since
	if h.until != 0 {
		h.planner.Announce(h.until)
	}
	h.changed()
	h.newCheckpoint(m)
	if !h.tracker.Has(h.id) {
		h.anew()
		return
	}
	if h.silence(); h.tracker.Unchecked() {
		h.checking = true
		h.check() // and then open
		return
	}
	h.open()
}

// open opens a watch where the last one left off.
func (h *host) open() {
	h.watch++
	number, from := h.watch, h.tracker.Position()+1
	h.call(func(m int) { h.etcd.open(h, number, m, from) })
	h.at(h.now+2*retry, func() {
		if h.watch == number && h.stream == nil && !h.relist && h.registered {
			h.open() // nothing came
		}
	})
	h.stream = nil
}

// take applies one answer of the watch.
func (h *host) take(number int, m *message) {
	if number != h.watch || !h.registered || h.relist {
		return
	}
	if h.stream == nil {
		h.stream = h.etcd.find(h, number)
	}
	switch {
	case m.fault == faultCompacted:
		h.stats.Compacted++
		h.relist = true
		h.listAnew()
		return
	case m.fault != "":
		h.at(h.now+1+h.r.Int64N(100*ms), func() {
			if h.watch == number && h.registered && !h.relist {
				h.open()
			}
		})
		return
	}
	h.silence()
	gap := false
	if m.progress {
		gap = h.tracker.Progress(m.header)
		h.progressed()
	}
	if m.created && h.trick(CreatedIsPosition) || len(m.keys) > 0 && h.trick(HeaderIsPosition) {
		h.tracker.Progress(m.header)
	}
	changes, unlike := h.tracker.Events(m.keys)
	if gap || unlike {
		h.stats.Unlike++
		h.gap()
		return
	}
	for _, c := range changes {
		if c.Policy != nil || c.PolicyDeleted {
			h.policy = c.Policy
		}
		h.planner.Apply(h.read(), c)
		h.changed()
	}
	for i := range m.keys {
		h.heed(h.backoff.Event(&m.keys[i], h.asksIn))
	}
	if len(m.keys) > 0 {
		if h.last = max(h.last, m.state); len(m.keys) > 1 || m.keys[0].Revision != h.same {
			h.heldSince = h.read().Mono
		}
		h.sameAsEtcd()
	}
	h.prove()
	if !h.tracker.Has(h.id) {
		h.anew()
	}
}

// sameAsEtcd checks that what the history holds is what etcd had. Until it is
// noticed that etcd was put back, it is not.
func (h *host) sameAsEtcd() {
	v := &h.etcd.states[h.last].view
	p, revision := h.planner.Policy()
	same := (p == nil) == (v.Policy == nil) && (p == nil || revision == v.PolicyRevision)
	if h.mutant == nil && h.kind != Restore && (h.planner.Instances() != len(v.Instances) || !same) {
		h.wrong("the view after revision %d is not etcd's", v.Revision)
	}
}

// find returns the host's stream, as long as it is open.
func (e *etcd) find(h *host, number int) *stream {
	for m := range e.members {
		for _, s := range e.members[m].streams {
			if s.host == h && s.number == number {
				return s
			}
		}
	}
	return nil
}

// anew registers once more, as another incarnation, after the key was lost.
func (h *host) anew() {
	if h.until != 0 || h.leaving {
		return
	}
	h.registered = false
	h.watch++
	attempt := h.attempt
	h.at(h.now+1+h.r.Int64N(100*ms), func() {
		if h.attempt == attempt {
			h.join()
		}
	})
}

// listAnew lists after a gap, under the same incarnation, whose key is written
// again before.
func (h *host) listAnew() {
	h.listing++
	id, number := h.id, h.listing
	going := func() bool { return h.relist && h.id == id && h.registered && h.listing == number }
	h.touch(mark{id: id, created: h.created, newest: h.reports.Newest()}, going, func(m mark) { h.pages(m, going, h.list) })
}

// gap notes that the history has a gap. Until it is listed no proof counts.
func (h *host) gap() {
	if h.relist {
		return
	}
	h.relist = true
	h.tracker.Doubt(h.read())
	h.watch++
	h.listAnew()
}

// freshness is S' as the view has it.
func (h *host) freshness() int64 {
	if h.policy == nil {
		return int64(quota.DefaultFreshness)
	}
	return int64(h.policy.Freshness)
}
