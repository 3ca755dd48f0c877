package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

func anyLine(t *rapid.T) line {
	length := time.Duration(rapid.Int64Range(100, 60_000).Draw(t, "length")) * time.Millisecond
	w := quota.Window{Length: length, Index: rapid.Int64Range(0, 1e9).Draw(t, "index")}
	guard := rapid.Int64Range(0, int64(length)/3).Draw(t, "guard")
	share := rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 1e9)).Draw(t, "share")
	return lineOf(w, rapid.Int64Range(-1e15, 1e15).Draw(t, "start"), guard, share, rapid.Uint64().Draw(t, "phase"))
}

// TestLineAtIsTheInverseOfDue: the first instant with n permits due.
func TestLineAtIsTheInverseOfDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := anyLine(t)
		if l.share == 0 {
			return
		}
		n := rapid.Int64Range(1, l.share).Draw(t, "n")
		at := l.at(n)
		if l.due(at) < n || at > l.start && l.due(at-2) >= n {
			t.Fatalf("%+v: permit %d at %d, where %d are due, and %d just before", l, n, at-l.start, l.due(at), l.due(at-2))
		}
		if l.due(l.start-1) != 0 || l.due(l.end) != l.share {
			t.Fatalf("%+v: due %d before and %d at the end", l, l.due(l.start-1), l.due(l.end))
		}
	})
}

// TestReleaseWastesNothing: a caller that takes all it is given has the whole
// share at the end, and never more in one slice than one and a half of the even rate.
func TestReleaseWastesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := anyLine(t)
		idle := l.start + rapid.Int64Range(0, (l.end-l.start)/4).Draw(t, "idle")
		used, now := int64(0), l.start
		most := 1.5*float64(l.share)*float64(l.slice)/float64(l.end-l.start) + 1
		over := l.end + early*l.slice // the window's end, less the guard
		for asked := 0; now < over; asked++ {
			n, next := l.release(now, used)
			if next <= now || asked > 40_000 {
				t.Fatalf("%+v: asked at %d, to ask again at %d", l, now, next)
			}
			if float64(n) > most {
				t.Fatalf("%+v: %d released in a slice, more than %v", l, n, most)
			}
			if now >= idle {
				used += n
			}
			now = next
		}
		if used != l.share {
			t.Fatalf("%+v: %d of %d issued", l, used, l.share)
		}
	})
}

// TestAShortPauseIsMadeGoodGently: after a pause in the first half of the window,
// what was not taken comes spread over the rest, not at once.
func TestAShortPauseIsMadeGoodGently(t *testing.T) {
	t.Parallel()
	const bucket = int64(50 * time.Millisecond)
	l := lineOf(quota.Window{Length: time.Second}, 0, 0, 50_000, 0)
	buckets := map[int64]int64{}
	used, now := int64(0), int64(0)
	for now < l.end+l.slice {
		n, next := l.release(now, used)
		used += n
		buckets[now/bucket] += n
		if now = next; now > l.end*2/5 && now < l.end*2/5+l.slice {
			now += int64(25 * time.Millisecond)
		}
	}
	even := l.share * bucket / (l.end - l.start)
	for b, n := range buckets {
		if n > even*115/100 {
			t.Errorf("from %v on %d permits are released in %v, evenly it were %d", time.Duration(b*bucket), n, time.Duration(bucket), even)
		}
	}
	if used != l.share {
		t.Fatalf("%d of %d issued", used, l.share)
	}
}
