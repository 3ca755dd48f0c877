package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what coordinator does between etcd and the tracker: register,
// watch, probe, list anew after a gap, doubt after a silence, register anew
// without a key. The real one has goroutines and etcd's client; the decisions
// are the same.

// retry is how long an answer is waited for.
const retry = 250 * ms

// join reads the policy, to announce the first window, and then registers.
func (h *host) join() {
	h.attempt++
	attempt := h.attempt
	h.at(h.now+2*retry+h.r.Int64N(100*ms), func() {
		if !h.registered && h.attempt == attempt && !h.leaving {
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

// firstWindow is coordinator's: from when a change that is announced now counts.
func firstWindow(now int64, p *quota.Policy) time.Time {
	at := now + int64(p.Settle+2*p.ClockError+200*time.Millisecond)
	longest := int64(p.LongestWindow())
	return time.Unix(0, (at+longest-1)/longest*longest)
}

// register writes the key of a new incarnation and lists everything, in one
// transaction.
func (h *host) register(attempt int, p *quota.Policy) {
	if h.attempt != attempt || h.leaving {
		return
	}
	i := quota.Instance{ID: fmt.Sprintf("%s.%d", h.name, attempt), Name: h.name, Weight: 1 + int64(h.number%3)}
	if h.trick(SameID) {
		i.ID = h.name
	}
	if h.announces && p != nil {
		i.From = firstWindow(h.clock.WallAt(h.read().Mono), p)
	}
	sent := h.read()
	h.call(func(int) {
		h.etcd.write(func() {
			if h.lapsed || h.etcd.has(i.ID) && !h.trick(SameID) {
				return // the lease is gone, or the transaction's condition fails
			}
			h.keys = append(h.keys, i.ID)
			revision := h.etcd.commit(change{put: []quota.Instance{i}})
			cluster, n := h.etcd.cluster, h.etcd.current()
			h.answer(func() {
				if h.attempt == attempt && !h.leaving {
					h.id, h.value, h.registered, h.newest, h.created, h.listed = i.ID, i, true, 0, revision, revision
					h.list(revision, cluster, n, sent)
				}
			})
		})
	})
}

// list starts the history from a listing.
func (h *host) list(revision int64, cluster uint64, n int, sent clock.Instant) {
	at := h.read()
	if h.trick(ListedWhenSent) {
		at = sent
	}
	v := h.tracker.List(sent, revision, cluster, h.etcd.states[n].keys)
	h.tracker.Wrote(h.listed)
	h.published.Reset()
	h.own(v.Level)
	h.warrant.Reset(at, h.id, v)
	h.policy, h.proved, h.behind, h.relist, h.checking = v.Policy, 0, 0, false, false
	h.first, h.last, h.heldSince = n, n, at.Mono
	if h.until != 0 {
		h.warrant.Announce(h.until)
	}
	h.changed()
	if !h.tracker.Has(h.id) {
		h.anew()
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
		h.own(c.Level)
		h.warrant.Apply(h.read(), c)
		h.changed()
	}
	if len(m.keys) > 0 {
		h.last, h.heldSince = max(h.last, m.state), h.read().Mono
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
	p, revision := h.warrant.Policy()
	same := (p == nil) == (v.Policy == nil) && (p == nil || revision == v.PolicyRevision)
	if h.mutant == nil && h.kind != Restore && (h.warrant.Instances() != len(v.Instances) || !same) {
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
// again with it.
func (h *host) listAnew() {
	id, watch := h.id, h.watch
	h.at(h.now+retry, func() {
		if h.relist && h.id == id && h.watch == watch && h.registered {
			h.listAnew()
		}
	})
	sent, value, created := h.read(), h.value, h.created
	h.call(func(int) {
		h.etcd.write(func() {
			listed := int64(0)
			if h.etcd.unchanged(id) && h.etcd.created(id) == created {
				listed = h.etcd.commit(change{put: []quota.Instance{value}})
			}
			revision, cluster, n := h.etcd.revision(), h.etcd.cluster, h.etcd.current()
			h.answer(func() {
				if h.relist && h.id == id && h.registered {
					h.listed = listed
					h.list(revision, cluster, n, sent)
				}
			})
		})
	})
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

// leave announces the end, goes on until then, and gives the key up.
func (h *host) leave(until time.Time) {
	h.leaving = true
	if !h.registered || h.id == "" {
		h.quit()
		return
	}
	if h.value.From.After(until) {
		until = h.value.From
	}
	h.until = until.UnixNano()
	h.warrant.Announce(h.until)
	h.changed()
	id, value := h.id, h.value
	value.Until = until
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.has(id) {
				h.etcd.commit(change{put: []quota.Instance{value}})
			}
		})
	})
	h.at(h.now+max(0, h.until-h.clock.WallAt(h.read().Mono)), h.quit)
}

// quit stops, and then gives the key up.
func (h *host) quit() {
	h.leaving = true
	h.close()
	h.world.at(h.now+h.delay(), func() {
		h.lapsed = true
		h.lapse()
	})
	h.dead = true
}

// lapse removes the keys under the host's lease, also those whose transaction
// was never answered.
func (h *host) lapse() {
	h.etcd.write(func() {
		if gone := slices.DeleteFunc(h.keys, func(id string) bool { return !h.etcd.has(id) }); len(gone) > 0 {
			h.etcd.commit(change{gone: gone})
		}
		h.keys = nil
	})
}

// probe is a linearizable read, again and again.
func (h *host) probe() {
	h.clock.Observe(h.read())
	pause := min(int64(300*time.Millisecond), h.freshness()/6)
	h.at(h.now+pause*3/4+h.r.Int64N(1+pause/2), h.probe)
	if !h.registered || h.relist {
		return
	}
	probe, id, sent := h.tracker.Sent(h.read()), h.id, h.read()
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			// Others write all the time.
			h.etcd.commit(change{})
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
	if h.warrant.Prove(proof) {
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
