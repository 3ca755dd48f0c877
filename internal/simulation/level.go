package simulation

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is sharing by weight and by demand: what coordinator does about
// reports and levels. Here any instance works out a level now and then, announced
// far enough ahead or not, so that several write at once and old ones come late.

// sharing is how a history's policies divide. It draws by itself, so that the
// histories of equal shares stay what they are.
type sharing struct {
	rule quota.ShareRule // of most policies
	r    *rand.Rand
}

func newSharing(seed uint64, kind Kind, m *Mutant) sharing {
	s := sharing{rule: quota.ShareEqual, r: rand.New(rand.NewPCG(seed, 7))}
	switch n := s.r.IntN(8); {
	case n < 1:
		s.rule = quota.ShareWeighted
	case n < 3 && kind != Calm: // what a leaver claimed is lost until the next level
		s.rule = quota.ShareDemand
	}
	if m != nil && m.Share != "" {
		s.rule = m.Share
	}
	return s
}

// shared sets how a policy divides.
func (s *sharing) shared(p *quota.Policy) *quota.Policy {
	p.Share, p.Weights, p.Floor = "", nil, 0
	if s.rule == quota.ShareEqual || s.r.IntN(6) == 0 {
		return p
	}
	p.Share = s.rule
	if s.r.IntN(10) == 0 { // another one for a while
		p.Share = map[quota.ShareRule]quota.ShareRule{quota.ShareWeighted: quota.ShareDemand, quota.ShareDemand: quota.ShareWeighted}[s.rule]
	}
	if p.Share == quota.ShareDemand {
		p.Floor = []int64{1, 10, 50}[s.r.IntN(3)]
	} else if s.r.IntN(2) == 0 {
		p.Weights = map[string]int64{"i0": 1 + s.r.Int64N(5), "i1": 1 + s.r.Int64N(5)}
	}
	return p
}

// report is one write of a report's key.
type report struct {
	revision int64
	id       string
	demand   int64
	gone     bool
}

// reported returns the newest report of an incarnation; the zero report if its key
// is not there.
func (e *etcd) reported(id string) (r report) {
	for _, x := range e.reports {
		if x.id == id {
			r = x
		}
	}
	if r.gone {
		return report{}
	}
	return r
}

// demandsAt returns the demands that stood at a revision.
func (e *etcd) demandsAt(revision int64) map[string]int64 {
	all := map[string]int64{}
	for _, r := range e.reports {
		switch {
		case r.revision > revision:
		case r.gone:
			delete(all, r.id)
		default:
			all[r.id] = r.demand
		}
	}
	return all
}

// asked are the demands that a window's shares follow from, by a state.
func (s *state) asked(w quota.Window) map[string]int64 {
	if e := s.view.Level.At(w.Start()); e != nil {
		return s.demands[e.Revision]
	}
	return nil
}

// demand writes reports, again and again.
func (h *host) demand() {
	every := 500 * ms
	if h.number%3 == 2 {
		every = 2500 * ms // what it asks for moves slowly
	}
	h.at(h.now+1+h.r.Int64N(every), h.demand)
	if !h.registered || h.relist { // a listing rests on the newest report
		return
	}
	id, newest, demand := h.id, h.newest, h.r.Int64N(80_000)
	if h.r.IntN(4) == 0 {
		demand = 0
	}
	noted := h.published
	w := noted.Sent(demand)
	if !h.trick(LostForgotten) {
		h.published = noted
	}
	h.claimed = demand
	h.reports++ // an answer is waited for until the next report: a later one is lost
	number, life := h.reports, h.etcd.life
	h.call(func(int) {
		h.etcd.write(func() {
			if h.lapsed || !h.etcd.has(id) || h.etcd.life != life {
				return // no lease, or its connection is gone
			}
			found := h.etcd.reported(id)
			if found.revision == newest {
				revision := h.etcd.commit(change{})
				found = report{revision: revision, id: id, demand: demand}
				h.etcd.reports = append(h.etcd.reports, found)
			}
			h.answer(func() {
				if h.id == id && h.registered && h.reports == number {
					h.newest = found.revision
					h.silence()
					if h.published.Committed(w, found.revision, found.demand) && !h.trick(LostUnseen) {
						h.gap()
						return
					}
					h.tracker.Wrote(found.revision)
				}
			})
		})
	})
}

// own completes a level by what this instance had reported itself.
func (h *host) own(l *quota.Level) {
	if l == nil {
		return
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		e.Demand = h.published.At(e.Revision)
		if h.trick(DemandOfNow) || h.trick(NewcomersClaim) && e.Demand == 0 {
			e.Demand = h.claimed
		}
	}
}

// divide works out a level, again and again.
func (h *host) divide() {
	h.at(h.now+1+h.r.Int64N(900*ms), h.divide)
	if !h.registered {
		return
	}
	ahead, sent := h.ahead(h.r), h.read()
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			revision, s := h.etcd.revision(), h.etcd.states[h.etcd.current()]
			demands := h.etcd.demandsAt(revision)
			h.answer(func() {
				if h.trick(LateLevel) {
					h.at(h.now+h.r.Int64N(3*h.freshness()), func() { h.level(revision, &s, demands, ahead, sent) })
					return
				}
				h.level(revision, &s, demands, ahead, sent)
			})
		})
	})
}

// level writes the level that follows from what was read at a revision, in the
// time in which etcd cannot have been put back.
func (h *host) level(revision int64, read *state, demands map[string]int64, ahead int64, sent clock.Instant) {
	p := read.view.Policy
	if h.read().Mono-sent.Mono >= h.freshness() && !h.trick(LateLevel) {
		return
	}
	if p == nil || p.Share != quota.ShareDemand {
		return
	}
	d := p.WithDefaults()
	from, life := time.Unix(0, h.clock.WallAt(h.read().Mono)+ahead), h.etcd.life
	h.call(func(int) {
		h.etcd.write(func() {
			if h.etcd.life != life {
				return
			}
			now := h.etcd.states[h.etcd.current()]
			if now.level != read.level || now.view.PolicyRevision != read.view.PolicyRevision {
				return
			}
			if h.trick(MixedRevisions) {
				demands = h.etcd.demandsAt(h.etcd.revision())
			}
			e := share.Divide(&d, read.view.Instances, demands, revision, from)
			if len(e.Limits) == 0 {
				return
			}
			l, ok := share.Extend(read.view.Level, e, from.UnixNano()-ahead-1000*ms)
			if l.Until = from.Add(time.Duration(h.r.Int64N(3000 * ms))); ok {
				h.etcd.commit(change{level: &l})
			}
		})
	})
}

// remember keeps the demands that a level's entries follow from.
func (s *state) remember(e *etcd, l *quota.Level) {
	s.demands = maps.Clone(s.demands)
	if s.demands == nil {
		s.demands = map[int64]map[string]int64{}
	}
	for _, x := range l.Entries {
		if _, ok := s.demands[x.Revision]; !ok {
			s.demands[x.Revision] = e.demandsAt(x.Revision)
		}
	}
}
