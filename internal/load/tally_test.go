package load

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The tallies of a sheet agree with maps, for windows near and far, also before 1970,
// and so do the counts that another process reads from a copy of their memory. Windows
// beyond the sheet are not counted.
func TestTalliesAgreeWithMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Sheet{Since: rapid.Int64Range(-9000, 9000).Draw(t, "since")}
		s.Until = s.Since + rapid.Int64Range(0, 5000).Draw(t, "time")
		for range rapid.IntRange(1, 3).Draw(t, "tallies") {
			s.Lengths = append(s.Lengths, time.Duration(rapid.Int64Range(1, 700).Draw(t, "length")))
		}
		memory := make([]byte, s.Bytes())
		tallies, models := s.Tallies(memory), make([]map[int64]Count, len(s.Lengths))
		for i := range models {
			models[i] = map[int64]Count{}
		}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			i := rapid.IntRange(0, len(tallies)-1).Draw(t, "tally")
			wall := s.Since + rapid.Int64Range(-2000, 7000).Draw(t, "wall")
			n := rapid.Int64Range(1, 9).Draw(t, "n")
			index := func(wall int64) int64 { return floorDiv(wall, int64(s.Lengths[i])) }
			c := Count{Index: index(wall), Issued: n}
			if rapid.Bool().Draw(t, "issue") {
				tallies[i].Issue(wall, n)
			} else {
				tallies[i].Offer(wall, n)
				c.Offered, c.Issued = n, 0
			}
			if index(s.Since) <= c.Index && c.Index <= index(s.Until) {
				models[i][c.Index] = models[i][c.Index].and(c)
			}
		}
		for i, read := range s.Tallies(slices.Clone(memory)) {
			got := read.Counts()
			if d := cmp.Diff(tallies[i].Counts(), got); d != "" {
				t.Fatal(d)
			}
			if len(got) != len(models[i]) || !slices.IsSortedFunc(got, func(a, b Count) int { return int(a.Index - b.Index) }) {
				t.Fatalf("%+v, want %+v", got, models[i])
			}
			for _, c := range got {
				want := models[i][c.Index]
				if want.Index = c.Index; c != want {
					t.Fatalf("%+v, want %+v", c, want)
				}
			}
		}
	})
}

// oneTally counts in windows of a length from the epoch on.
func oneTally(length time.Duration, until int64) *Tally {
	return (&Sheet{Until: until, Lengths: []time.Duration{length}}).New()[0]
}

// No count is lost when the generator and callbacks count at once.
func TestNothingIsLostBetweenWriters(t *testing.T) {
	const writers, windows = 4, 10_000
	tally := oneTally(time.Nanosecond, windows)
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

// Whoever is killed between a Try and what came of it leaves a permit that is
// counted, and doubtful; nothing else is.
func TestWhatIsBeingTakenIsDoubtful(t *testing.T) {
	tally := oneTally(1000, 1e6)
	for _, step := range []struct {
		name string
		do   func()
		want []Count
	}{
		{"tried", func() { tally.Try(5500) }, []Count{{Index: 5, Issued: 1, Doubtful: 1}}},
		{"refused", func() { tally.Refused(5500) }, []Count{}},
		{"tried in the first window", func() { tally.Try(0) }, []Count{{Index: 0, Issued: 1, Doubtful: 1}}},
		{"refused again", func() { tally.Refused(0) }, []Count{}},
		{"tried again", func() { tally.Try(5500) }, []Count{{Index: 5, Issued: 1, Doubtful: 1}}},
		{"taken", func() { tally.Taken(5500, 5000) }, []Count{{Index: 5, Issued: 1}}},
		{"another", func() { tally.Try(5999) }, []Count{{Index: 5, Issued: 2, Doubtful: 1}}},
		{"of the next window", func() { tally.Taken(5999, 6000) }, []Count{{Index: 5, Issued: 1}, {Index: 6, Issued: 1}}},
		{"far away", func() { tally.Try(900_000) }, []Count{{Index: 5, Issued: 1}, {Index: 6, Issued: 1}, {Index: 900, Issued: 1, Doubtful: 1}}},
		{"of no window that is counted", func() { tally.Taken(900_000, 9_000_000) }, []Count{{Index: 5, Issued: 1}, {Index: 6, Issued: 1}}},
	} {
		step.do()
		if d := cmp.Diff(step.want, tally.Counts()); d != "" {
			t.Error(step.name, d)
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
	t := oneTally(time.Second, int64(time.Hour))
	for i := range b.N {
		t.Issue(int64(i)*1000, 1)
	}
}
