package tally

import (
	"slices"
	"sync"
)

const (
	costsKept   = 100 // of settled calls
	costsNeeded = 20  // before they say what is usual

	// usualOf is how many of 100 calls cost at most what is usual. With 95 a limit of 40 calls a window was
	// used by 0.94 where costs are spread widely: a call that outlives its window gives nothing back.
	usualOf = 90
)

// Costs are what the last settled calls have cost. The zero Costs are of none. Its methods are safe for concurrent use.
type Costs struct {
	mu     sync.Mutex
	last   []int64 // in the order in which they were settled, from next on
	next   int     // place of the next one in last
	sorted []int64 // the same, smallest first
}

// Usual returns what usualOf of 100 calls cost at most, and at least 1; most if too few were settled.
func (c *Costs) Usual(most int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.sorted)
	if n < costsNeeded {
		return most
	}
	return max(1, c.sorted[(usualOf*n+99)/100-1])
}

// Settled notes the cost of one more call.
func (c *Costs) Settled(cost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.last) < costsKept {
		c.last = append(c.last, cost)
	} else {
		at, _ := slices.BinarySearch(c.sorted, c.last[c.next])
		c.sorted = slices.Delete(c.sorted, at, at+1)
		c.last[c.next] = cost
		c.next = (c.next + 1) % costsKept
	}
	at, _ := slices.BinarySearch(c.sorted, cost)
	c.sorted = slices.Insert(c.sorted, at, cost)
}
