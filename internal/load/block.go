package load

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

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

// counts returns the windows in which anything was counted, in order.
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
