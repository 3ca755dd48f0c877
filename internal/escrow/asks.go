package escrow

import (
	"slices"
)

// This file is about an instance that has too few permits of a limit in flight, whose permits come back when calls
// end. It asks for more in the total, which all instances watch: one that has idle permits gives them back to the
// total, and there the asker takes them. While instances with less than an equal part of the limit ask, the others
// take beyond an equal part of their own only what is left beside what these lack to theirs, and one that has more than an
// equal part gives back what comes back to it. Asks only move permits: that the limit holds does not depend on them.

// Ask is what one instance lacks.
type Ask struct {
	By uint64 `json:"by,string"` // Use.By
	N  int64  `json:"n"`         // permits
	// Poor is how many of N the instance lacks to an equal part of the limit.
	Poor int64 `json:"poor,omitempty"`
	// Until is when it becomes void, by the asker's corrected clock, in nanoseconds since the Unix epoch.
	Until int64 `json:"until"`
}

const (
	// mostAsks bounds the asks of a total. An instance that finds it full tries again later.
	mostAsks = 16
	// AskLasts is for how long an ask counts, in nanoseconds. The asker writes it again while it lacks permits.
	AskLasts = int64(3e9)
)

// Asked returns how many permits all but one instance ask for, and how many of these are Poor. by names that one. now
// is corrected wall time, in nanoseconds since the Unix epoch.
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

// leaves returns how many of the left permits of the total are not for an instance that has as many as has says: others
// with less than an equal part ask for them.
func (t *Total) leaves(r Rule, u Use, left, has int64) int64 {
	_, poor := t.Asked(u.By, r.Now)
	if poor == 0 {
		return 0
	}
	return min(poor, left-min(left, max(0, r.fair()-has)))
}

// AskedBy reports whether an ask of one instance counts; by names it. now is as in Asked.
func (t *Total) AskedBy(by uint64, now int64) bool {
	return slices.ContainsFunc(t.Asks, func(a Ask) bool { return a.By == by && a.Until > now })
}

// ask notes what an instance lacks, or that it lacks nothing, and forgets asks that are void. It returns whether the
// total is to be written for that: if it has an ask of this instance now, or has none any more while others ask. Else
// what is withdrawn or void goes with the next write.
func (t *Total) ask(r Rule, u Use, lacks, has int64) (write bool) {
	i := slices.IndexFunc(t.Asks, func(a Ask) bool { return a.By == u.By })
	was := i >= 0
	if lacks <= 0 && !was && !slices.ContainsFunc(t.Asks, func(a Ask) bool { return a.Until <= r.Now }) {
		return false
	}
	t.Asks = slices.DeleteFunc(slices.Clone(t.Asks), func(a Ask) bool { return a.By == u.By || a.Until <= r.Now })
	if lacks <= 0 || len(t.Asks) >= mostAsks {
		return was && len(t.Asks) > 0
	}
	t.Asks = append(t.Asks, Ask{By: u.By, N: lacks, Poor: min(lacks, max(0, r.fair()-has)), Until: r.Now + AskLasts})
	return true
}

// Hear takes a newer total, as a watch has told it. A purse that knows of no total, or of a store that went back,
// waits for an answer of etcd instead. Hear is not called while the purse is in a KeyUse that is handed out.
func (p *Purse) Hear(t Total, revision int64) {
	if p.verdict != nil && revision > p.revision && p.revision != 0 && p.lost == noLoss {
		p.total, p.revision, p.restored = t, revision, false
		p.settle()
	}
}
