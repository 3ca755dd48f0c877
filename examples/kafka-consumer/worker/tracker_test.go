package worker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive keeps every record it was ever given.
type naive struct {
	offsets []int64
	done    map[int64]bool
}

// commit is the offset after the longest run of finished records.
func (n *naive) commit() (end int64, ok bool) {
	for _, o := range n.offsets {
		if !n.done[o] {
			break
		}
		end, ok = o+1, true
	}
	return end, ok
}

// The committed offset never passes an unfinished record, and lags behind no
// finished run.
func TestTrackerAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var tr tracker
		model := naive{done: map[int64]bool{}}
		next := rapid.Int64Range(0, 5).Draw(t, "first")
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1: // a record, perhaps after a gap
				next += rapid.Int64Range(0, 2).Draw(t, "gap")
				if !tr.add(next, 0) {
					t.Fatalf("offset %d was refused", next)
				}
				model.offsets = append(model.offsets, next)
				next++
			case 2, 3: // finished in any order, perhaps twice
				if len(model.offsets) == 0 {
					continue
				}
				o := rapid.SampledFrom(model.offsets).Draw(t, "offset")
				if got, want := tr.finish(o), !model.done[o]; got != want {
					t.Fatalf("finish(%d) = %v, want %v", o, got, want)
				}
				model.done[o] = true
			case 4: // an offset that goes back, or was never given
				o := rapid.Int64Range(-1, next-1).Draw(t, "old")
				if tr.add(o, 0) && slices.Contains(model.offsets, o) {
					t.Fatalf("offset %d was taken twice", o)
				} else if len(model.offsets) > 0 && o <= slices.Max(model.offsets) && tr.add(o, 0) {
					t.Fatalf("offset %d was taken below the highest", o)
				} else if len(model.offsets) == 0 || o > slices.Max(model.offsets) {
					model.offsets = append(model.offsets, o)
				}
			}
			wantEnd, wantOK := model.commit()
			if end, _, ok := tr.commit(); ok != wantOK || ok && end != wantEnd {
				t.Fatalf("commit is %d %v, want %d %v", end, ok, wantEnd, wantOK)
			}
			if got, want := tr.unfinished(), len(model.offsets)-len(model.done); got != want {
				t.Fatalf("%d unfinished, want %d", got, want)
			}
		}
	})
}

func TestTrackerKeepsTheEpochOfTheCommittedRecord(t *testing.T) {
	t.Parallel()
	var tr tracker
	tr.add(7, 1)
	tr.add(8, 2)
	tr.finish(8)
	if _, _, ok := tr.commit(); ok {
		t.Error("8 is finished and 7 is not: nothing can be committed")
	}
	tr.finish(7)
	if offset, epoch, ok := tr.commit(); offset != 9 || epoch != 2 || !ok {
		t.Errorf("commit is %d in epoch %d, %v; want 9 in epoch 2", offset, epoch, ok)
	}
	if tr.add(8, 3) {
		t.Error("a record before the committed offset was taken")
	}
}
