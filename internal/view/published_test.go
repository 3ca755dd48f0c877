package view

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPublished(t *testing.T) {
	t.Parallel()
	var p Published
	expect := func(revision, demand int64) {
		t.Helper()
		if got := p.At(revision); got != demand {
			t.Errorf("at revision %d: %d, want %d", revision, got, demand)
		}
	}
	expect(1, 0)
	w := p.Sent(70)
	expect(5, 0)
	p.Committed(w, 10, 70)
	expect(9, 0)
	expect(10, 70)
	p.Sent(40) // its answer is lost
	expect(10, 70)
	expect(11, 40)
	p.Sent(90) // tried again
	expect(12, 40)
	p.Committed(w, 14, 40) // it was the lost one that is there
	expect(13, 70)
	expect(14, 40)
	if p.Committed(w, 14, 40) || p.Newest() != 14 {
		t.Errorf("the newest report is that of %d, and found again it is a gap", p.Newest())
	}
	if !p.Committed(w, 12, 5) { // the store went back
		t.Error("an older report than the newest is no gap")
	}
	p.Reset(15, 10)
	expect(14, 0)
	expect(15, 10)
	p.Committed(w, 16, 30) // an answer from before the gap
	expect(16, 10)
	p.Committed(p.Sent(20), 18, 20)
	expect(18, 20)
}

// TestPublishedIsNeverMoreThanWasThere: a store in which a write whose answer is
// lost is committed or not, at once or later, but never after another one. The
// demand at any revision is at most what the store had.
func TestPublishedIsNeverMoreThanWasThere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p Published
		type write struct{ revision, demand, before int64 }
		stored := []write{{}}                 // what the key was, by revision
		var late []write                      // on their way
		revision, known := int64(1), int64(0) // known: the report that the writer believes to be newest
		commit := func(w write) bool {
			if stored[len(stored)-1].revision != w.before {
				return false
			}
			revision++
			stored = append(stored, write{revision: revision, demand: w.demand})
			return true
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			revision += rapid.Int64Range(0, 2).Draw(t, "others")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if len(late) > 0 {
					commit(late[0])
					late = late[1:]
				}
			case 1: // lost
				w := write{demand: rapid.Int64Range(0, 9).Draw(t, "demand"), before: known}
				p.Sent(w.demand)
				late = append(late, w)
			default:
				w := write{demand: rapid.Int64Range(0, 9).Draw(t, "demand"), before: known}
				writing := p.Sent(w.demand)
				commit(w) // or it finds what is there
				last := stored[len(stored)-1]
				known = last.revision
				if p.Committed(writing, last.revision, last.demand) {
					t.Fatalf("a gap at revision %d, and nothing was lost", last.revision)
				}
			}
			at := rapid.Int64Range(0, revision).Draw(t, "at")
			there := int64(0)
			for _, w := range stored {
				if w.revision <= at {
					there = w.demand
				}
			}
			if got := p.At(at); got > there {
				t.Fatalf("at revision %d: %d, the store had %d", at, got, there)
			}
		}
	})
}
