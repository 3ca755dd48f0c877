package load

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Count is what happened in one window.
type Count struct {
	Index   int64 `json:"index"`   // since the Unix epoch
	Offered int64 `json:"offered"` // calls made while the window lasted
	Issued  int64 `json:"issued"`  // permits that belong to the window
}

// cellsPerBlock is how many windows a Tally makes room for at a time.
const cellsPerBlock = 1024

// Tally counts by window. The zero Tally is not ready; make one with NewTally.
// Its methods are safe for concurrent use.
type Tally struct {
	length int64

	// blocks maps a window's index, divided by cellsPerBlock, to its counts. A
	// load generator asks for the same block nearly always, so it is kept in
	// recent, beside the map: read without the lock, replaced under it.
	recent atomic.Pointer[block]
	mu     sync.Mutex
	blocks map[int64]*block
}

type block struct {
	number int64
	cells  [cellsPerBlock]cell
}

// cell is written by the generator that owns the tally and by the limiters'
// callbacks, and read once they have stopped.
type cell struct {
	offered atomic.Int64
	issued  atomic.Int64
}

// NewTally returns a tally of windows of that length.
func NewTally(length time.Duration) *Tally {
	return &Tally{length: int64(length), blocks: map[int64]*block{}}
}

// Offer counts n calls made at the instant wall.
func (t *Tally) Offer(wall, n int64) { t.at(wall).offered.Add(n) }

// Issue counts n permits that belong to the window around the instant wall.
func (t *Tally) Issue(wall, n int64) { t.at(wall).issued.Add(n) }

func (t *Tally) at(wall int64) *cell {
	k := floorDiv(wall, t.length)
	number := floorDiv(k, cellsPerBlock)
	b := t.recent.Load()
	if b == nil || b.number != number {
		b = t.find(number)
	}
	return &b.cells[k-number*cellsPerBlock]
}

func (t *Tally) find(number int64) *block {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.blocks[number]
	if b == nil {
		b = &block{number: number}
		t.blocks[number] = b
	}
	t.recent.Store(b)
	return b
}

// Counts returns the windows in which anything was counted, in order.
func (t *Tally) Counts() []Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	var counts []Count
	for number, b := range t.blocks {
		for i := range b.cells {
			c := Count{
				Index:   number*cellsPerBlock + int64(i),
				Offered: b.cells[i].offered.Load(),
				Issued:  b.cells[i].issued.Load(),
			}
			if c.Offered != 0 || c.Issued != 0 {
				counts = append(counts, c)
			}
		}
	}
	sort.Slice(counts, func(i, j int) bool { return counts[i].Index < counts[j].Index })
	return counts
}

// Merge adds up counts by window: those of several generators, or of several
// processes. The result is in order.
func Merge(parts ...[]Count) []Count {
	sum := map[int64]Count{}
	for _, counts := range parts {
		for _, c := range counts {
			s := sum[c.Index]
			sum[c.Index] = Count{Index: c.Index, Offered: s.Offered + c.Offered, Issued: s.Issued + c.Issued}
		}
	}
	merged := make([]Count, 0, len(sum))
	for _, c := range sum {
		merged = append(merged, c)
	}
	sort.Slice(merged, func(i, j int) bool { return merged[i].Index < merged[j].Index })
	return merged
}

// floorDiv divides rounding down, also below zero.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
