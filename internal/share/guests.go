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
	mostNear   = 64 // how many members an instance looks at to find its guests
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
	if len(p.newcomers) == 0 {
		return nil
	}
	hosts := 0 // that come first for all guests further away
	for _, m := range p.nearest() {
		if p.newcomers[m.id] != nil && m.from > wall {
			all = append(all, m.id)
		} else if m.takesPart(wall) {
			if hosts++; hosts == hostsOf {
				break
			}
		}
	}
	slices.Sort(all)
	return all[:min(len(all), mostGuests)]
}

// nearest returns the members before self in the cyclic order of IDs, the last one first, by
// the newest view: enough to find self's guests, or else it lends to fewer.
func (h *History) nearest() []*member {
	if few := len(h.before) < mostNear/2; few && len(h.before) < len(h.members)-1 {
		h.looks += int64(len(h.members))
		h.before = h.before[:0]
		for _, m := range h.members {
			h.approach(m)
		}
	}
	return h.before
}

// approach adds m to the nearest members, if it is one of them.
func (h *History) approach(m *member) {
	if full := len(h.before) == mostNear; m.id == h.self || full && h.further(m, h.before[mostNear-1]) > 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(h.before, m, h.further)
	h.before = slices.Insert(h.before[:min(len(h.before), mostNear-1)], i, m)
}

// further is 1 if a is further before self than b, else -1; 0 if they are the same.
func (h *History) further(a, b *member) int {
	switch {
	case a.id == b.id:
		return 0
	case between(a.id, b.id, h.self):
		return 1
	}
	return -1
}

// moved takes a change of one member into the nearest ones, if they are known.
func (h *History) moved(old, new *member) {
	if len(h.before) == 0 {
		return
	}
	if old != nil {
		if i, there := slices.BinarySearchFunc(h.before, old, h.further); there {
			h.before = slices.Delete(h.before, i, i+1)
		}
	}
	if n := len(h.before); new != nil && n > 0 && h.further(new, h.before[n-1]) < 0 {
		h.approach(new)
	}
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
