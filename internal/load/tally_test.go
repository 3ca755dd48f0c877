package load

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func memory() *Block { return new(Block) }

// The tally agrees with a map, for windows near and far, also before 1970.
func TestTallyAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(1, 5).Draw(t, "length"))
		tally, model := NewTally(Series{Length: length}, memory), map[int64]Count{}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			wall := rapid.Int64Range(-5*cellsPerBlock, 5*cellsPerBlock).Draw(t, "wall")
			n := rapid.Int64Range(1, 9).Draw(t, "n")
			k := wall / int64(length)
			if wall < 0 && wall%int64(length) != 0 {
				k--
			}
			c := model[k]
			c.Index = k
			if rapid.Bool().Draw(t, "issue") {
				tally.Issue(wall, n)
				c.Issued += n
			} else {
				tally.Offer(wall, n)
				c.Offered += n
			}
			model[k] = c
		}
		got := tally.Counts()
		if len(got) != len(model) {
			t.Fatalf("%d windows, want %d", len(got), len(model))
		}
		for i, c := range got {
			if c != model[c.Index] {
				t.Fatalf("window %d: %+v, want %+v", c.Index, c, model[c.Index])
			}
			if i > 0 && got[i-1].Index >= c.Index {
				t.Fatalf("window %d after %d", c.Index, got[i-1].Index)
			}
		}
	})
}

// No count is lost when the generator and callbacks count at once, in blocks
// that are new to both.
func TestNothingIsLostBetweenWriters(t *testing.T) {
	const writers, windows = 4, 3 * cellsPerBlock
	tally := NewTally(Series{Length: time.Nanosecond}, memory)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for k := range int64(windows) {
				tally.Issue(k, 1)
			}
		})
	}
	wg.Wait()
	counts := tally.Counts()
	if len(counts) != windows {
		t.Fatalf("%d windows, want %d", len(counts), windows)
	}
	for _, c := range counts {
		if c.Issued != writers {
			t.Fatalf("window %d has %d, want %d", c.Index, c.Issued, writers)
		}
	}
}

func TestMergeAddsUpByWindow(t *testing.T) {
	got := Merge(
		[]Count{{Index: 3, Offered: 5, Issued: 2}, {Index: 4, Offered: 1}},
		nil,
		[]Count{{Index: 1, Issued: 7}, {Index: 3, Offered: 10, Issued: 1}},
	)
	want := []Count{{Index: 1, Issued: 7}, {Index: 3, Offered: 15, Issued: 3}, {Index: 4, Offered: 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func BenchmarkIssue(b *testing.B) {
	t := NewTally(Series{Length: time.Second}, memory)
	for i := range b.N {
		t.Issue(int64(i)*1000, 1)
	}
}
