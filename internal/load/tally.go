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

// Tally counts by window. The zero Tally is not ready; make one with NewTally.
// Its methods are safe for concurrent use.
type Tally struct {
	length int64

	// blocks maps a window's index, divided by cellsPerBlock, to its counts. A
	// load generator asks for the same block nearly always, so it is kept in
	// recent, beside the map: read without the lock, replaced under it.
	recent atomic.Pointer[Block]
	mu     sync.Mutex
	blocks map[int64]*Block
	room   func() *Block
}

// NewTally returns a tally of windows of that length.
func NewTally(length time.Duration) *Tally {
	return NewTallyIn(length, func() *Block { return new(Block) })
}

// NewTallyIn returns a tally that counts in the blocks that room returns, each
// zero and used by nobody else; they may lie in memory that other processes see.
func NewTallyIn(length time.Duration, room func() *Block) *Tally {
	return &Tally{length: int64(length), blocks: map[int64]*Block{}, room: room}
}

// Offer counts n calls made at the instant wall.
func (t *Tally) Offer(wall, n int64) { t.at(wall).offered.Add(n) }

// Issue counts n permits that belong to the window around the instant wall; a
// negative n takes back what was counted too much.
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

func (t *Tally) find(number int64) *Block {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.blocks[number]
	if b == nil {
		b = t.room()
		b.begin(t.length, number)
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
