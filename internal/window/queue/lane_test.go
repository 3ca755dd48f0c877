package queue

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// Against looking at all: nearest is never later than the earliest deadline, and
// is that one where deadlines are in order.
func TestNearestDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q lane
		q.nearest = clock.Forever
		var list []*Waiter
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(list) > 0 && rapid.IntRange(0, 2).Draw(t, "leave") == 0 {
				i := rapid.SampledFrom([]int{0, len(list) - 1, rapid.IntRange(0, len(list)-1).Draw(t, "who")}).Draw(t, "which")
				q.remove(list[i])
				list = append(list[:i:i], list[i+1:]...)
			} else {
				w := &Waiter{n: 1, deadline: rapid.Int64Range(0, 50).Draw(t, "deadline")}
				if rapid.Bool().Draw(t, "later") && q.tail != nil {
					w.deadline += q.tail.deadline
				}
				q.push(w)
				list = append(list, w)
			}
			earliest, ordered := clock.Forever, true
			for i, w := range list {
				earliest = min(earliest, w.deadline)
				ordered = ordered && (i == 0 || w.deadline >= list[i-1].deadline)
			}
			if q.nearest > earliest || !q.unordered && (q.nearest != earliest || !ordered) {
				t.Fatalf("nearest %d, unordered %v; the earliest is %d", q.nearest, q.unordered, earliest)
			}
		}
	})
}

// Who may give permits back counts as served before a caller that is gone by then, and the first of several decides.
func TestWhoIsSurelyServedBefore(t *testing.T) {
	var q Queue
	var all [3]Waiter
	for i, from := range []int64{clock.Forever, 19, 17} {
		all[i].MayGiveBack(from)
		q.Push(&all[i], 1, 100, Default, false)
	}
	for until, want := range map[int64]int64{16: 3, 17: 1, 18: 1, clock.Forever: 1} {
		ahead := q.Nobody()
		for w := range q.All {
			ahead.Join(w)
		}
		if got, behind := q.Before(1, until, Default, false), ahead.Before(1, until, false); got != want || behind != want {
			t.Errorf("until %d: %d and %d before, want %d", until, got, behind, want)
		}
	}
}
