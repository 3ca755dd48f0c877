package share

import (
	"maps"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

const (
	hostsOf    = 2  // how many instances lend to a newcomer
	mostGuests = 8  // how many an instance lends to
	storm      = 12 // how many newcomers there may be, that anybody lends
)

// guests returns the newcomers to which this instance lends at the instant now, by
// the offset of the latest Plan: those for which it is one of the first that take part,
// in the order of IDs after theirs. Nothing depends on the instances' agreement. An
// instance that continues another one's incarnation cannot sign, and lends nothing.
func (p *Planner) guests(now int64) (all []string) {
	wall := now + p.offset
	me := p.members[p.self]
	if me == nil || !p.Lends || p.stale || len(p.newcomers) > storm || !me.takesPart(wall) {
		return nil
	}
	for _, guest := range p.newcomers {
		if guest.from <= wall {
			continue
		}
		before := 0 // hosts that come first
		for _, m := range p.members {
			if m.id != p.self && m.takesPart(wall) && between(guest.id, m.id, p.self) {
				before++
			}
		}
		if before < hostsOf {
			all = append(all, guest.id)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), mostGuests)]
}

// grown forgets the newcomers that have shares of their own at the instant now.
func (p *Planner) grown(now int64) {
	maps.DeleteFunc(p.newcomers, func(_ string, m *member) bool { return m.from <= now+p.offset || m.until <= m.from })
}

// SharesOf returns an instance's shares of some windows by the newest view.
func (h *History) SharesOf(id string, windows []quota.Window) []int64 {
	shares, all := make([]int64, len(windows)), crowd{h, h.changes}
	for i, w := range windows {
		shares[i] = newDivision(h.newest(), w, id, all).value(all).Permits
	}
	return shares
}

// between reports whether b comes before c in the cyclic order of IDs from a on.
func between(a, b, c string) bool {
	if a < c {
		return a < b && b < c
	}
	return a < b || b < c
}
