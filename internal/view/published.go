package view

import "math"

// Published is what this instance has reported as its demand, by revision: what
// whoever works out a level may have read. Reports are written one after the
// other, each on the condition that the one before it is still the newest; so an
// answer that was lost leaves one report in doubt, which the next answer clears
// up. The zero Published has reported nothing. It is not safe for concurrent use.
type Published struct {
	known  []published // committed, oldest first
	sent   []int64     // may have been committed after all of known
	resets Writing
}

// Writing is a report under way. Its answer says nothing any more after a Reset.
type Writing int

type published struct{ revision, demand int64 }

// maxPublished is how many reports are remembered: as no more than one in two
// seconds is written, for longer than any level lasts.
const maxPublished = 128

// Sent notes that a report with that demand is about to be written.
func (p *Published) Sent(demand int64) Writing {
	p.sent = append(p.sent, demand)
	return p.resets
}

// Committed takes the answer of a report: the newest one is that of revision,
// with that demand, and none that was sent before can still be committed. It
// returns true if the store went backwards, for it had a newer one: the history
// has a gap.
func (p *Published) Committed(w Writing, revision, demand int64) (gap bool) {
	if w != p.resets {
		return false
	}
	p.sent = p.sent[:0]
	if newest := p.Newest(); newest >= revision {
		return newest > revision
	}
	if len(p.known) == maxPublished {
		p.known = p.known[:copy(p.known, p.known[1:])]
	}
	p.known = append(p.known, published{revision, demand})
	return false
}

// Newest returns the revision of the newest report that is known to have been
// committed, 0 if there is none. A store that has only an older one went
// backwards.
func (p *Published) Newest() int64 {
	if n := len(p.known); n > 0 {
		return p.known[n-1].revision
	}
	return 0
}

// At returns the demand that stood in etcd at a revision; where an answer was
// lost, the smallest that can have. Before the first report it is 0.
func (p *Published) At(revision int64) int64 {
	demand, newest := int64(0), int64(math.MinInt64)
	for _, k := range p.known {
		if k.revision <= revision {
			demand = k.demand
		}
		newest = k.revision
	}
	if revision > newest {
		for _, d := range p.sent {
			demand = min(demand, d)
		}
	}
	return demand
}

// Reset forgets everything but the report with which a history begins, that of
// newest, with its demand: after a gap, or with another incarnation. Nothing that
// was reported before counts.
func (p *Published) Reset(newest, demand int64) {
	*p = Published{resets: p.resets + 1, known: []published{{newest, demand}}}
}
