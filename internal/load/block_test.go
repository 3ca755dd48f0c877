package load

import (
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// bytesOf returns the memory of blocks as a file would hold it.
func bytesOf(blocks []*Block) []byte {
	var data []byte
	for _, b := range blocks {
		data = append(data, unsafe.Slice((*byte)(unsafe.Pointer(b)), BlockBytes)...)
	}
	return data
}

// What tallies of two lengths count in shared blocks is what is read from them,
// also with blocks between that nobody has begun.
func TestBlocksAreReadAsTheyWereCounted(t *testing.T) {
	if n := unsafe.Sizeof(Block{}); n != BlockBytes {
		t.Fatalf("a block has %d bytes, want %d", n, BlockBytes)
	}
	rapid.Check(t, func(t *rapid.T) {
		var blocks []*Block
		room := func() *Block {
			b := new(Block)
			if len(blocks)%2 == 1 {
				blocks = append(blocks, new(Block))
			}
			blocks = append(blocks, b)
			return b
		}
		coarse := []*Tally{NewTally(Series{Labelled, 1000}, room), NewTally(Series{Labelled, 1000}, room)}
		fine := NewTally(Series{Came, 1000}, room)
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			wall := rapid.Int64Range(-9_000_000, 9_000_000).Draw(t, "wall")
			n := rapid.Int64Range(1, 9).Draw(t, "n")
			coarse[rapid.IntRange(0, 1).Draw(t, "tally")].Issue(wall, n)
			fine.Offer(wall, n)
		}
		got, err := ReadBlocks(bytesOf(blocks))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(Merge(coarse[0].Counts(), coarse[1].Counts()), Merge(got[Series{Labelled, 1000}])); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(Merge(fine.Counts()), Merge(got[Series{Came, 1000}])); d != "" {
			t.Error(d)
		}
	})
}

// Whoever is killed between a Try and what came of it leaves a permit that is
// counted, and doubtful; nothing else is.
func TestWhatIsBeingTakenIsDoubtful(t *testing.T) {
	var blocks []*Block
	tally := NewTally(Series{Length: 1000}, func() *Block { blocks = append(blocks, new(Block)); return blocks[len(blocks)-1] })
	for _, step := range []struct {
		name string
		do   func()
		want []Count
	}{
		{"tried", func() { tally.Try(5500) }, []Count{{Index: 5, Issued: 1, Doubtful: 1}}},
		{"refused", func() { tally.Refused(5500) }, []Count{}},
		{"tried again", func() { tally.Try(5500) }, []Count{{Index: 5, Issued: 1, Doubtful: 1}}},
		{"taken", func() { tally.Taken(5500, 5000) }, []Count{{Index: 5, Issued: 1}}},
		{"another", func() { tally.Try(5999) }, []Count{{Index: 5, Issued: 2, Doubtful: 1}}},
		{"of the next window", func() { tally.Taken(5999, 6000) }, []Count{{Index: 5, Issued: 1}, {Index: 6, Issued: 1}}},
		{"far away", func() { tally.Try(9_000_000_000) }, []Count{{Index: 5, Issued: 1}, {Index: 6, Issued: 1}, {Index: 9_000_000, Issued: 1, Doubtful: 1}}},
	} {
		step.do()
		got, err := ReadBlocks(bytesOf(blocks))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(step.want, Merge(got[Series{Length: 1000}])); d != "" {
			t.Error(step.name, d)
		}
	}
}

func FuzzReadBlocks(f *testing.F) {
	b := new(Block)
	b.begin(Series{Length: time.Second}, 7)
	b.cells[3].issued.Store(5)
	f.Add(bytesOf([]*Block{b}), 0)
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, head []byte, cut int) {
		// Whole blocks are what is mostly of interest; they are long.
		data := make([]byte, BlockBytes, BlockBytes+1)
		copy(data, head)
		if cut%7 == 3 {
			data = append(data, 0)
		}
		found, err := ReadBlocks(data)
		if err != nil {
			return
		}
		for of, counts := range found {
			if of.Length <= 0 || len(counts) == 0 || len(counts) > cellsPerBlock {
				t.Errorf("%d windows of %v", len(counts), of)
			}
		}
	})
}
