package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Count is what happened in one window.
type Count struct {
	Index int64 // since the Unix epoch
	// Offered and Issued are, in this order, calls made while the window lasted and
	// permits that belong to it, or what else the tally's Kind says.
	Offered, Issued int64
	// Doubtful are those of Issued that may not have been taken after all: their
	// process was killed while it took them.
	Doubtful int64
}

func (c Count) certain() int64 { return c.Issued - c.Doubtful }

func (c Count) and(d Count) Count {
	return Count{Index: d.Index, Offered: c.Offered + d.Offered, Issued: c.Issued + d.Issued, Doubtful: c.Doubtful + d.Doubtful}
}

// Tally counts by window. The zero Tally is not ready; make one with NewTally.
// Its methods are safe for concurrent use.
type Tally struct {
	of Series

	mu     sync.Mutex
	blocks map[int64]*Block // by a window's index, divided by cellsPerBlock
	room   func() *Block
}

// NewTally returns a tally that counts in the blocks that room returns, each zero
// and used by nobody else; they may lie in memory that other processes see.
func NewTally(of Series, room func() *Block) *Tally {
	return &Tally{of: of, blocks: map[int64]*Block{}, room: room}
}

// Offer counts n calls made at the instant wall.
func (t *Tally) Offer(wall, n int64) { t.at(wall).offered.Add(n) }

// Issue counts n permits that belong to the window around the instant wall.
func (t *Tally) Issue(wall, n int64) { t.at(wall).issued.Add(n) }

// Try counts a permit that is about to be taken, in the window around wall. Until
// Taken or Refused follows, the permit is doubtful: if the process is killed before
// that, its counts have the permit and say that it may not exist. A kill between the
// two writes here counts it without the mark, so the count is never too low. One
// goroutine at a time may try.
func (t *Tally) Try(wall int64) {
	b, i := t.find(wall)
	b.cells[i].issued.Add(1)
	b.trying.Store(i + 1)
}

// Taken says that the permit of the latest Try, at tried, was taken, and belongs
// to the window that starts at start.
func (t *Tally) Taken(tried, start int64) {
	b, i := t.find(tried)
	if at, j := t.find(start); at != b || j != i {
		at.cells[j].issued.Add(1)
		b.cells[i].issued.Add(-1)
	}
	b.trying.Store(0)
}

// Refused says that the permit of the latest Try, at tried, was not taken.
func (t *Tally) Refused(tried int64) {
	b, i := t.find(tried)
	b.cells[i].issued.Add(-1)
	b.trying.Store(0)
}

func (t *Tally) at(wall int64) *cell {
	b, i := t.find(wall)
	return &b.cells[i]
}

func (t *Tally) find(wall int64) (b *Block, cell int64) {
	k := floorDiv(wall, int64(t.of.Length))
	number := floorDiv(k, cellsPerBlock)
	t.mu.Lock()
	defer t.mu.Unlock()
	if b = t.blocks[number]; b == nil {
		b = t.room()
		b.begin(t.of, number)
		t.blocks[number] = b
	}
	return b, k - number*cellsPerBlock
}

// Counts returns the windows in which anything was counted, in order.
func (t *Tally) Counts() []Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	var parts [][]Count
	for _, b := range t.blocks {
		parts = append(parts, b.counts())
	}
	return Merge(parts...)
}

// Merge adds up counts by window: those of several generators, or of several
// processes. The result is in order.
func Merge(parts ...[]Count) []Count {
	sum := map[int64]Count{}
	for _, counts := range parts {
		for _, c := range counts {
			sum[c.Index] = sum[c.Index].and(c)
		}
	}
	merged := slices.AppendSeq([]Count{}, maps.Values(sum))
	slices.SortFunc(merged, func(a, b Count) int { return cmp.Compare(a.Index, b.Index) })
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

const (
	// BlockBytes is the size of a block in memory and in a file: 64 KiB, which is
	// a multiple of every page size and what Windows aligns mappings to.
	BlockBytes = 64 << 10
	headBytes  = 64
	cellBytes  = 16
	// cellsPerBlock is how many windows a Tally makes room for at a time.
	cellsPerBlock = (BlockBytes - headBytes) / cellBytes
)

// Kind says what a tally counts, and by which instant.
type Kind int64

// The kinds of tallies. Each counts two things, as Count.Issued and Count.Offered.
const (
	// Labelled counts permits by the window, or slot, that each one tells, and
	// calls by the generator's clock.
	Labelled Kind = iota
	// Came counts permits by the generator's clock, as they came to their callers;
	// Offered are those of them that were held up (see Place).
	Came
	// Misplaced counts permits outside the window that they tell, by that window.
	Misplaced
	// Arrived counts requests by the provider's clock; Offered are the late ones.
	Arrived
)

// Series is what a tally counts, in windows of which length.
type Series struct {
	Kind   Kind
	Length time.Duration
}

// Sums are counts of several series.
type Sums map[Series][]Count

// Add merges more counts in.
func (s Sums) Add(more Sums) {
	for series, counts := range more {
		s[series] = Merge(s[series], counts)
	}
}

// Block is the counts of a run of windows: two words a window, behind a header. It
// may lie in a file that is mapped into memory, in the machine's own byte order, so
// that the counts of a killed process can be read. A length of 0 means that nothing
// was counted yet.
type Block struct {
	length atomic.Int64 // set last, when number and kind are there
	number int64        // of the first window, divided by cellsPerBlock
	trying atomic.Int64 // 1 + the cell in which a permit is counted that is being taken; 0: none is
	kind   int64
	_      [headBytes/8 - 4]int64
	cells  [cellsPerBlock]cell
}

// cell is written by the generator that owns the tally and by the limiters'
// callbacks.
type cell struct {
	offered atomic.Int64
	issued  atomic.Int64
}

func (b *Block) begin(of Series, number int64) {
	b.number, b.kind = number, int64(of.Kind)
	b.length.Store(int64(of.Length))
}

func (b *Block) counts() (counts []Count) {
	trying := b.trying.Load() - 1
	for i := range b.cells {
		c := Count{Index: b.number*cellsPerBlock + int64(i), Offered: b.cells[i].offered.Load(), Issued: b.cells[i].issued.Load()}
		if trying == int64(i) && c.Issued > 0 {
			c.Doubtful = 1
		}
		if c.Offered != 0 || c.Issued != 0 {
			counts = append(counts, c)
		}
	}
	return counts
}

// ReadBlocks returns what is counted in blocks that lie one after the other, as
// their processes left them. Blocks that were not begun count nothing.
func ReadBlocks(data []byte) (Sums, error) {
	if len(data)%BlockBytes != 0 {
		return nil, fmt.Errorf("counts of %d bytes: not a multiple of the %d that a block has", len(data), BlockBytes)
	}
	found := Sums{}
	for i := range len(data) / BlockBytes {
		b := new(Block)
		copy((*[BlockBytes]byte)(unsafe.Pointer(b))[:], data[i*BlockBytes:]) //nolint:gosec // the layout is the file's
		of := Series{Kind: Kind(b.kind), Length: time.Duration(b.length.Load())}
		if of.Length == 0 {
			continue
		}
		if of.Length < 0 || of.Kind < Labelled || of.Kind > Arrived {
			return nil, fmt.Errorf("block %d counts windows of %d ns, kind %d: this is no file of counts", i, of.Length, of.Kind)
		}
		if counts := b.counts(); len(counts) > 0 {
			found[of] = Merge(found[of], counts)
		}
	}
	return found, nil
}
