package load

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"
)

// Count is what happened in one window.
type Count struct {
	Index int64 // since the Unix epoch
	// Offered and Issued are, in this order, calls made while the window lasted and
	// permits that belong to it, or what else its tally counts.
	Offered, Issued int64
	// Doubtful are those of Issued that may not have been taken after all: their
	// process was killed while it took them.
	Doubtful int64
}

func (c Count) certain() int64 { return c.Issued - c.Doubtful }

func (c Count) and(d Count) Count {
	return Count{Index: d.Index, Offered: c.Offered + d.Offered, Issued: c.Issued + d.Issued, Doubtful: c.Doubtful + d.Doubtful}
}

// Tally counts by window, in memory that other processes may see: the counts of a
// killed process can be read. Sheet.Tallies makes tallies. Its methods are safe for
// concurrent use.
type Tally struct {
	length time.Duration
	first  int64 // the window of the first cell after the reserved ones
	cells  []cell
}

// cell is written by the generator that owns the tally and by the limiters'
// callbacks.
type cell struct{ offered, issued atomic.Int64 }

// The reserved cells of a tally.
const (
	trying   = iota // its offered is the cell in which a permit is counted that is being taken; 0: none is
	beyond          // of all windows that have no cell
	reserved        // how many there are
)

// Offer counts n calls made at the instant wall.
func (t *Tally) Offer(wall, n int64) { t.cells[t.at(wall)].offered.Add(n) }

// Issue counts n permits that belong to the window around the instant wall.
func (t *Tally) Issue(wall, n int64) { t.cells[t.at(wall)].issued.Add(n) }

// Try counts a permit that is about to be taken, in the window around wall. Until
// Taken or Refused follows, the permit is doubtful: if the process is killed before
// that, its counts have the permit and say that it may not exist. A kill between the
// two writes here counts it without the mark, so the count is never too low. One
// goroutine at a time may try.
func (t *Tally) Try(wall int64) {
	i := t.at(wall)
	t.cells[i].issued.Add(1)
	t.cells[trying].offered.Store(i)
}

// Taken says that the permit of the latest Try, at tried, was taken, and belongs
// to the window that starts at start.
func (t *Tally) Taken(tried, start int64) {
	if i, j := t.at(tried), t.at(start); i != j {
		t.cells[j].issued.Add(1)
		t.cells[i].issued.Add(-1)
	}
	t.cells[trying].offered.Store(0)
}

// Refused says that the permit of the latest Try, at tried, was not taken.
func (t *Tally) Refused(tried int64) {
	t.Issue(tried, -1)
	t.cells[trying].offered.Store(0)
}

// at returns the cell of the window around an instant.
func (t *Tally) at(wall int64) int64 {
	i := floorDiv(wall, int64(t.length)) - t.first + reserved
	if i < reserved || i >= int64(len(t.cells)) {
		return beyond
	}
	return i
}

// Counts returns the windows in which anything was counted, in order, without those
// that begin outside the sheet's time.
func (t *Tally) Counts() []Count {
	counts, doubtful := []Count{}, t.cells[trying].offered.Load()
	for i := int64(reserved); i < int64(len(t.cells)); i++ {
		c := Count{Index: t.first + i - reserved, Offered: t.cells[i].offered.Load(), Issued: t.cells[i].issued.Load()}
		if i == doubtful && c.Issued > 0 {
			c.Doubtful = 1
		}
		if c.Offered != 0 || c.Issued != 0 {
			counts = append(counts, c)
		}
	}
	return counts
}

// Sheet is the time in which is counted, from Since to Until, and the length of the
// windows of each of some tallies.
type Sheet struct {
	Since, Until int64
	Lengths      []time.Duration
}

// cells returns the window of a tally's first cell, and how many cells it has.
func (s *Sheet) cells(length time.Duration) (first, n int64) {
	first = floorDiv(s.Since, int64(length))
	return first, floorDiv(s.Until, int64(length)) - first + 1 + reserved
}

// Bytes is how much memory the tallies need.
func (s *Sheet) Bytes() (n int64) {
	for _, length := range s.Lengths {
		_, cells := s.cells(length)
		n += cells * int64(unsafe.Sizeof(cell{}))
	}
	return n
}

// Tallies returns the tallies, one for each length, whose counts lie in memory of
// Bytes, which is zero or was written by such tallies.
func (s *Sheet) Tallies(memory []byte) (tallies []*Tally) {
	//nolint:gosec // the layout is that of all processes of a run, which are one program
	all := unsafe.Slice((*cell)(unsafe.Pointer(unsafe.SliceData(memory))), len(memory)/int(unsafe.Sizeof(cell{})))
	for _, length := range s.Lengths {
		first, n := s.cells(length)
		tallies = append(tallies, &Tally{length, first, all[:n]})
		all = all[n:]
	}
	return tallies
}

// New returns tallies that nobody else sees.
func (s *Sheet) New() []*Tally { return s.Tallies(make([]byte, s.Bytes())) }

// Merge adds up counts by window: those of several generators, or of several
// processes. The result is in order.
func Merge(parts ...[]Count) []Count {
	merged := slices.AppendSeq([]Count{}, maps.Values(sum(slices.Concat(parts...), 1, 1)))
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

// The tallies of a generator, each by its own meaning of Count.Issued and Offered.
const (
	// Labelled counts permits by the window, or slot, that each one tells, and
	// calls by the generator's clock.
	Labelled = iota
	// Came counts permits by the generator's clock, as they came to their callers;
	// Offered are those of them that were held up (see Place).
	Came
	// Misplaced counts permits outside the window that they tell, as Came does.
	Misplaced
)
