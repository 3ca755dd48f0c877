package simulation

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is sharing by weight and by demand: what coordinator does about
// reports and levels. Here any instance writes a level now and then, announced far
// enough ahead or not, so that several write at once and old ones come late.

// sharing is how a history's policies divide. It draws by itself, so that the
// histories of equal shares stay what they are.
type sharing struct {
	rule quota.ShareRule // of most policies
	r    *rand.Rand
}

func newSharing(seed uint64, m *Mutant) sharing {
	s := sharing{rule: quota.ShareEqual, r: rand.New(rand.NewPCG(seed, 7))}
	switch n := s.r.IntN(8); {
	case n < 1:
		s.rule = quota.ShareWeighted
	case n < 4:
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

// report is one write of a report's key. No two have the same value, but for
// those that somebody copies.
type report struct {
	revision int64
	id       string
	demand   int64
	value    []byte
	gone     bool
}

// newReport returns a report that is not written yet.
func (w *world) newReport(id string, demand int64) report {
	return report{id: id, demand: demand, value: strconv.AppendInt(nil, int64(w.number()), 10)}
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

// demands returns what all instances report.
func (e *etcd) demands() map[string]int64 {
	all := map[string]int64{}
	for _, r := range e.reports {
		if all[r.id] = r.demand; r.gone {
			delete(all, r.id)
		}
	}
	return all
}

// tell writes a report, whatever was there, and returns it.
func (e *etcd) tell(r report) report {
	if r.revision = e.commit(change{}); r.revision != 0 {
		e.reports = append(e.reports, r)
	}
	return r
}

// randomDemand is what an instance asks for.
func randomDemand(r *rand.Rand) int64 {
	if r.IntN(4) == 0 {
		return 0
	}
	return r.Int64N(80_000)
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
	report := h.newReport(h.id, randomDemand(h.r))
	after := h.reports.Sent(report.value)
	h.reporting++ // an answer is waited for until the next report: a later one is lost
	number, life := h.reporting, h.etcd.life
	h.call(func(int) {
		h.etcd.write(func() {
			if h.lapsed || !h.etcd.has(report.id) || h.etcd.life != life {
				return // no lease, or its connection is gone
			}
			found := h.etcd.reported(report.id)
			if found.revision == after {
				found = h.etcd.tell(report)
			}
			h.answer(func() {
				if h.id == report.id && h.registered && h.reporting == number {
					h.reported(after, found)
				}
			})
		})
	})
}

// reported takes the answer to a report that was sent after a revision.
func (h *host) reported(after int64, found report) {
	h.silence()
	own, gap := h.reports.Found(after, found.revision, found.value)
	switch {
	case gap && !h.trick(LostUnseen):
		h.gap()
	case own:
		h.tracker.Wrote(found.revision)
	}
}

// divide writes a level, again and again.
func (h *host) divide() {
	h.at(h.now+1+h.r.Int64N(900*ms), h.divide)
	p := h.policy
	if !h.registered || p == nil || p.Share != quota.ShareDemand {
		return
	}
	ahead := h.ahead(h.r)
	h.call(func(m int) {
		h.etcd.linear(m, func() {
			revision, read, demands := h.etcd.revision(), h.etcd.states[h.etcd.current()].view.Level, h.etcd.demands()
			h.answer(func() {
				from := time.Unix(0, h.clock.WallAt(h.read().Mono)+ahead)
				l, ok := share.Extend(read, share.NewEntry(demands, revision, from), from.UnixNano()-ahead-1000*ms)
				l.Until = from.Add(time.Duration(h.r.Int64N(3000 * ms)))
				if h.kind == Calm && read != nil && l.Until.Before(read.Until) {
					l.Until = read.Until
				}
				h.call(func(int) {
					h.etcd.write(func() {
						if ok && h.etcd.states[h.etcd.current()].view.Level == read {
							h.etcd.commit(change{level: &l})
						}
					})
				})
			})
		})
	})
}
