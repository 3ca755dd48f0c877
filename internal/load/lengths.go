package load

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Lengths returns the window lengths of all the limits, each once, shortest
// first.
func Lengths(lists ...[]quota.Limit) []time.Duration {
	var lengths []time.Duration
	for _, limits := range lists {
		for _, l := range limits {
			lengths = append(lengths, l.Window)
		}
	}
	slices.Sort(lengths)
	return slices.Compact(lengths)
}

// Shortest returns the limit with the shortest window. There must be one.
func Shortest(limits []quota.Limit) quota.Limit {
	shortest := limits[0]
	for _, l := range limits[1:] {
		if l.Window < shortest.Window {
			shortest = l
		}
	}
	return shortest
}

// CheckCountable reports whether permits that tell the window of the shortest
// limit can be counted by every other window too: all limits need the same
// shortest window, and every other window must be a multiple of it.
func CheckCountable(lists ...[]quota.Limit) error {
	lengths := Lengths(lists...)
	for _, limits := range lists {
		if w := Shortest(limits).Window; w != lengths[0] {
			return fmt.Errorf("the shortest window is %v in one set of limits and %v in another: permits tell their shortest window only, so give all sets the same one", lengths[0], w)
		}
	}
	for _, w := range lengths[1:] {
		if w%lengths[0] != 0 {
			return fmt.Errorf("window %v is not a multiple of the shortest window %v: permits tell their shortest window only, so use a multiple such as %v", w, lengths[0], (w/lengths[0]+1)*lengths[0])
		}
	}
	return nil
}
