package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is somebody with a consumer's role, who writes what a consumer's role
// may write: any key of the provider but the policy. Keys are deleted, and written
// over with garbage, with what another key holds, and with well-formed values that
// promise somebody too much; once, or many times in a row.

// tamper does that once, or begins to do it again and again.
func (w *world) tamper(r *rand.Rand) string {
	n, gap := 1, int64(1)
	if r.IntN(3) == 0 {
		n, gap = 2+r.IntN(20), 1+r.Int64N(100*ms)
	}
	only := r.IntN(6) // with some the same all the time
	at := w.now
	for range n {
		w.at(at, func() { w.forge(r, only) })
		at += 1 + r.Int64N(gap)
	}
	return fmt.Sprintf(" (%d writes)", n)
}

// forge writes one key as no honest instance would.
func (w *world) forge(r *rand.Rand, only int) {
	what := only
	if what > 2 {
		what = r.IntN(3)
	}
	w.etcd.write(func() {
		switch what {
		case 0:
			w.forgeLevel(r)
		case 1:
			w.forgeInstance(r)
		default:
			w.forgeReport(r)
		}
	})
}

// anybody is the ID of an incarnation: one whose key is there, one whose report is,
// one that is yet to come, or nobody's.
func (w *world) anybody(r *rand.Rand) string {
	live := w.etcd.view().Instances
	switch n := r.IntN(8); {
	case n < 5 && len(live) > 0:
		return live[r.IntN(len(live))].ID
	case n == 5 && len(w.etcd.reports) > 0:
		return w.etcd.reports[r.IntN(len(w.etcd.reports))].id
	case n == 6 && len(w.hosts) > 0:
		h := w.hosts[r.IntN(len(w.hosts))]
		return idOf(h.name, h.attempt+1)
	}
	return fmt.Sprintf("ghost%d", r.IntN(3))
}

// forgeLevel writes a level in which some ask for everything and some for nothing,
// from any instant to any other, or garbage; or deletes it.
func (w *world) forgeLevel(r *rand.Rand) {
	switch r.IntN(6) {
	case 0:
		w.etcd.commit(change{levelGone: true})
		return
	case 1:
		w.etcd.commit(change{garbage: view.Level})
		return
	}
	instant := func() time.Time { return wallTime(w.now + r.Int64N(4000*ms) - 2000*ms) }
	var l protocol.Level
	for range 1 + r.IntN(3) {
		demands := map[string]int64{}
		for range r.IntN(6) {
			demands[w.anybody(r)] = []int64{0, 1, 30_000, protocol.MaxDemand}[r.IntN(4)]
		}
		e := share.NewEntry(demands, 1+r.Int64N(1<<40), instant())
		if r.IntN(4) == 0 {
			e.Demands = make([]byte, r.IntN(30))
			for i := range e.Demands {
				e.Demands[i] = byte(r.Uint32())
			}
		}
		l.Entries = append(l.Entries, e)
	}
	slices.SortFunc(l.Entries, func(a, b protocol.LevelEntry) int { return a.From.Compare(b.From) })
	l.Entries = slices.CompactFunc(l.Entries, func(a, b protocol.LevelEntry) bool { return a.From.Equal(b.From) })
	l.Until = instant().Add(time.Second)
	w.etcd.commit(change{level: &l})
}

// forgeInstance deletes a key, or writes any value under it, with a lease that runs
// out with its owner's or with none.
func (w *world) forgeInstance(r *rand.Rand) {
	id := w.anybody(r)
	i := quota.Instance{ID: id, Name: []string{"i0", "x"}[r.IntN(2)], Weight: 1 + r.Int64N(5), Attempt: 1000 + w.number()}
	switch n := r.IntN(6); {
	case n < 2:
		if w.etcd.has(id) {
			w.etcd.commit(change{gone: []string{id}})
		}
		return
	case n == 2:
		w.etcd.commit(change{put: []quota.Instance{{ID: id, Weight: 1}}, garbage: view.Instance})
	case n == 3:
		i.From = wallTime(w.now + r.Int64N(2000*ms) - 1000*ms)
		w.etcd.commit(change{put: []quota.Instance{i}})
	case n == 4:
		w.etcd.commit(change{put: []quota.Instance{w.forgeEnd(r, i)}})
	default:
		w.etcd.commit(change{put: []quota.Instance{i}})
	}
	if r.IntN(2) == 0 { // no lease: somebody sees it and deletes it
		w.at(w.now+r.Int64N(w.settle()), func() {
			w.etcd.write(func() {
				if w.etcd.has(id) {
					w.etcd.commit(change{gone: []string{id}})
				}
			})
		})
	}
}

// forgeEnd promises for others that they issue nothing: without a seal, with one by
// another key, or with one that was made for another end; or it says again what
// somebody once promised.
func (w *world) forgeEnd(r *rand.Rand, i quota.Instance) quota.Instance {
	i.Until = wallTime(w.now + r.Int64N(2000*ms) - 1000*ms)
	n := r.IntN(4)
	if n == 0 {
		protocol.Seal(&i, keyOf("stranger", 1))
	}
	if n > 1 && len(w.sealed) > 0 {
		old := w.sealed[r.IntN(len(w.sealed))]
		if i.Seal = old.Seal; n == 3 {
			return old
		}
	}
	return i
}

// forgeReport deletes a report, or writes one with any demand over it; with the
// value that it had, or that another has, or another.
func (w *world) forgeReport(r *rand.Rand) {
	id := w.anybody(r)
	x := w.newReport(id, []int64{0, 1, 80_000, protocol.MaxDemand}[r.IntN(4)])
	switch r.IntN(6) {
	case 0, 1:
		x.gone = true
	case 2:
		x.value = w.etcd.reported(id).value
	case 3:
		x.value = w.etcd.reported(w.anybody(r)).value
	}
	w.etcd.tell(x)
}

// number is one that nothing else in the history has.
func (w *world) number() int {
	w.written++
	return w.written
}

// rubbish is a value that cannot be read. No two are the same.
func (w *world) rubbish() []byte { return strconv.AppendInt([]byte("rubbish "), int64(w.number()), 10) }
