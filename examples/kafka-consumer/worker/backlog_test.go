package worker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// Every record is handed out until it is finished, never to two at once; an
// ordered backlog hands out one at a time and in order; fetching pauses and
// resumes exactly at the bounds.
func TestBacklogAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		high := rapid.IntRange(1, 20).Draw(t, "high")
		b := backlog{high: high, low: high / 2, ordered: rapid.Bool().Draw(t, "ordered")}
		waiting, finished := map[int64]bool{}, map[int64]bool{}
		var out []*item
		var next int64
		paused := false
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				b.push(&kgo.Record{Offset: next})
				waiting[next] = true
				next++
			case 1:
				n := rapid.IntRange(1, 5).Draw(t, "n")
				if b.ordered {
					n = 1
				}
				items := b.take(n)
				free := len(waiting) > 0 && (!b.ordered || len(out) == 0)
				if (len(items) > 0) != free || len(items) > n {
					t.Fatalf("%d items of at most %d; %d wait, %d are out", len(items), n, len(waiting), len(out))
				}
				for _, it := range items {
					o := it.record.Offset
					if !waiting[o] {
						t.Fatalf("record %d was handed out and does not wait", o)
					}
					if b.ordered && o != int64(len(finished)) {
						t.Fatalf("record %d was handed out, and %d are finished", o, len(finished))
					}
					if it.rejected > 0 && len(items) > 1 {
						t.Fatalf("record %d was rejected before and is not alone", o)
					}
					delete(waiting, o)
				}
				out = append(out, items...)
			case 2, 3:
				if len(out) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(out)-1).Draw(t, "i")
				it := out[i]
				out = append(out[:i:i], out[i+1:]...)
				if rapid.Bool().Draw(t, "processed") {
					b.finish(it)
					finished[it.record.Offset] = true
				} else {
					it.rejected += rapid.IntRange(0, 1).Draw(t, "rejected")
					b.back(it)
					waiting[it.record.Offset] = true
				}
			}
			if b.out != len(out) || b.track.unfinished() != len(out)+len(waiting) {
				t.Fatalf("%d out, %d unfinished; want %d, %d", b.out, b.track.unfinished(), len(out), len(out)+len(waiting))
			}
			turn := b.turn()
			if n := len(out) + len(waiting); !paused && n >= high {
				paused = true
				if turn != +1 {
					t.Fatalf("%d unfinished of %d: not paused", n, high)
				}
			} else if paused && n <= high/2 {
				paused = false
				if turn != -1 {
					t.Fatalf("%d unfinished of %d: not resumed", n, high)
				}
			} else if turn != 0 {
				t.Fatalf("turn %d with %d of %d unfinished, paused %v", turn, n, high, paused)
			}
		}
	})
}
