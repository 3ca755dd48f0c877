package ntp

import (
	"cmp"
	"slices"
)

// interval is where the true offset is, if a server is right: from lo to hi,
// both included, in nanoseconds.
type interval struct{ lo, hi int64 }

// meets reports whether the two have an offset in common.
func (i interval) meets(j interval) bool { return i.lo <= j.hi && j.lo <= i.hi }

// majority returns the interval in which the true offset is, if no more of the
// intervals are wrong than must be: from the lowest to the highest offset that
// the largest number of intervals have in common. votes is that number.
//
// It is the algorithm of K. Marzullo, Maintaining the Time in a Distributed
// System (1984), as NTP's selection has it (RFC 5905, section 11.2.1), but for
// one thing: NTP also counts midpoints, to tell who is precise. What is wanted
// here is a bound, and where two groups of equal size contradict each other
// within a third one's interval, the bound spans both.
func majority(all []interval) (common interval, votes int) {
	type edge struct {
		at   int64
		step int // 1 where an interval begins, -1 where it ends
	}
	edges := make([]edge, 0, 2*len(all))
	for _, i := range all {
		if i.lo <= i.hi {
			edges = append(edges, edge{i.lo, 1}, edge{i.hi, -1})
		}
	}
	// At one offset beginnings come first: intervals that touch have it in common.
	slices.SortFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(a.at, b.at), b.step-a.step)
	})
	depth := 0
	for _, e := range edges {
		switch {
		case e.step > 0:
			if depth++; depth > votes {
				votes, common.lo = depth, e.at
			}
		default:
			if depth == votes {
				common.hi = e.at
			}
			depth--
		}
	}
	return common, votes
}
