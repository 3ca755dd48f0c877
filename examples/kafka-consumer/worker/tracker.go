package worker

// tracker knows which offset of one partition may be committed: everything
// before it is finished. Offsets are added in ascending order, with gaps where
// the topic was compacted or holds transaction markers, and finished in any.
//
// It is pure, and for one goroutine at a time. Its zero value is empty.
type tracker struct {
	// marks are the records from the lowest unfinished one on, ascending. The
	// first is never finished: what is finished at the front is taken off.
	marks []mark
	// end is the offset after the last record taken off, epoch that record's
	// leader epoch; moved is whether there was one at all.
	end   int64
	epoch int32
	moved bool
	open  int // of marks, the unfinished ones
}

type mark struct {
	offset int64
	epoch  int32
	done   bool
}

// add takes a record over. It returns false, and changes nothing, if the offset
// is not above all others: the log was rewound, and the partition must be begun
// anew.
func (t *tracker) add(offset int64, epoch int32) bool {
	if n := len(t.marks); n > 0 && offset <= t.marks[n-1].offset || t.moved && offset < t.end {
		return false
	}
	t.marks = append(t.marks, mark{offset: offset, epoch: epoch})
	t.open++
	return true
}

// finish marks a record as finished. It returns false if the offset is not
// that of an unfinished one.
func (t *tracker) finish(offset int64) bool {
	i := t.find(offset)
	if i == len(t.marks) || t.marks[i].offset != offset || t.marks[i].done {
		return false
	}
	t.marks[i].done = true
	t.open--
	n := 0
	for n < len(t.marks) && t.marks[n].done {
		n++
	}
	if n > 0 {
		last := t.marks[n-1]
		t.end, t.epoch, t.moved = last.offset+1, last.epoch, true
		t.marks = t.marks[n:]
	}
	return true
}

// find returns the index of the first mark at or above the offset.
func (t *tracker) find(offset int64) int {
	low, high := 0, len(t.marks)
	for low < high {
		if mid := (low + high) / 2; t.marks[mid].offset < offset {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// commit returns the offset to be committed, and the leader epoch of the record
// before it; ok is false as long as nothing is finished.
func (t *tracker) commit() (offset int64, epoch int32, ok bool) {
	return t.end, t.epoch, t.moved
}

// unfinished is the number of records added and not finished.
func (t *tracker) unfinished() int { return t.open }
