package escrow

import (
	"slices"
)

// This file is about who has too few permits of a limit in flight, whose permits come back when calls end. It asks
// for more in the total, which all instances watch: who has some idle gives them back to the total, and there the
// asker takes them. While somebody with less than an equal part of the limit asks, nobody takes more than its own
// equal part, and who has more gives back what comes back to it. Asks only move permits: no sum depends on one.

// Ask is what one instance lacks.
type Ask struct {
	By uint64 `json:"by,string"` // Use.By
	N  int64  `json:"n"`         // permits
	// Poor are those of N up to an equal part of the limit.
	Poor  int64 `json:"poor,omitempty"`
	Until int64 `json:"until"` // corrected wall time from which on it is void
}

const (
	// mostAsks bounds the asks of a total. Who finds so many asks later.
	mostAsks = 16
	// AskLasts is for how long an ask counts, in nanoseconds. The asker writes it again while it lacks permits.
	AskLasts = int64(3e9)
)

// Asked returns how many permits others than an instance lack, and how many of these poorly, at an instant of
// corrected wall time.
func (t *Total) Asked(by uint64, now int64) (n, poor int64) {
	for _, a := range t.Asks {
		if a.By != by && a.Until > now {
			n, poor = n+a.N, poor+a.Poor
		}
	}
	return n, poor
}

// Fair is an equal part of a limit among so many instances, rounded up.
func Fair(limit, instances int64) int64 {
	instances = max(1, instances)
	return (limit + instances - 1) / instances
}

// fair is an equal part of the limit.
func (r Rule) fair() int64 { return Fair(r.Limit, r.Instances) }

// leaves returns how many of the permits left an instance leaves to those that ask. has is how many it has.
func (t *Total) leaves(r Rule, u Use, left, has int64) int64 {
	_, poor := t.Asked(u.By, r.Now)
	if poor == 0 {
		return 0
	}
	return min(poor, left-min(left, max(0, r.fair()-has)))
}

// ask notes what an instance lacks, or that it lacks nothing, and forgets asks that are void. It returns whether
// that is news.
func (t *Total) ask(r Rule, u Use, lacks, has int64) (news bool) {
	i := slices.IndexFunc(t.Asks, func(a Ask) bool { return a.By == u.By })
	was := i >= 0
	if lacks <= 0 && !was && !slices.ContainsFunc(t.Asks, func(a Ask) bool { return a.Until <= r.Now }) {
		return false
	}
	t.Asks = slices.DeleteFunc(slices.Clone(t.Asks), func(a Ask) bool { return a.By == u.By || a.Until <= r.Now })
	if lacks <= 0 || len(t.Asks) >= mostAsks {
		return false // it goes with the next write
	}
	t.Asks = append(t.Asks, Ask{By: u.By, N: lacks, Poor: min(lacks, max(0, r.fair()-has)), Until: r.Now + AskLasts})
	return true
}

// Hear takes a total that was written at a revision, as a watch has told it. It is not for a purse with which etcd
// is asked.
func (p *Purse) Hear(t Total, revision int64) {
	if p.verdict != nil && revision > p.revision && p.revision != 0 && !p.lost {
		p.total, p.revision = t, revision
	}
}
