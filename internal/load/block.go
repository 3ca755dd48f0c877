package load

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
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

// Block is the counts of a run of windows. Its layout is that of a block in a
// file that is mapped into memory, in the machine's own byte order: a header of
// eight words, of which three are used, then two words a window. A length of 0 means that nothing was counted yet.
//
// Who killed the process that counts can so read what it had counted.
type Block struct {
	length atomic.Int64 // set last, when number is there
	number int64        // of the first window, divided by cellsPerBlock
	trying atomic.Int64 // 1 + the cell in which a permit is counted that is being taken; 0: none is
	_      [headBytes/8 - 3]int64
	cells  [cellsPerBlock]cell
}

// cell is written by the generator that owns the tally and by the limiters'
// callbacks, and read once they have stopped, or were killed.
type cell struct {
	offered atomic.Int64
	issued  atomic.Int64
}

func (b *Block) begin(length, number int64) {
	b.number = number
	b.length.Store(length)
}

// ReadBlocks returns what is counted in blocks that lie one after the other, by
// the length of the windows. Blocks that were not begun count nothing.
func ReadBlocks(data []byte) (map[time.Duration][]Count, error) {
	if len(data)%BlockBytes != 0 {
		return nil, fmt.Errorf("counts of %d bytes: not a multiple of the %d that a block has", len(data), BlockBytes)
	}
	found := map[time.Duration][]Count{}
	word := func(at int) int64 { return int64(binary.NativeEndian.Uint64(data[at:])) }
	for at := 0; at < len(data); at += BlockBytes {
		length, number, trying := word(at), word(at+8), word(at+16)
		if length == 0 {
			continue
		}
		if length < 0 {
			return nil, fmt.Errorf("block %d counts windows of %d ns: this is no file of counts", at/BlockBytes, length)
		}
		for i := range cellsPerBlock {
			cell := at + headBytes + i*cellBytes
			c := Count{Index: number*cellsPerBlock + int64(i), Offered: word(cell), Issued: word(cell + 8)}
			if trying == int64(i)+1 && c.Issued > 0 {
				c.Doubtful = 1
			}
			if c.Offered != 0 || c.Issued != 0 {
				found[time.Duration(length)] = append(found[time.Duration(length)], c)
			}
		}
	}
	for length, counts := range found {
		found[length] = Merge(counts) // in order, and of several tallies
	}
	return found, nil
}
