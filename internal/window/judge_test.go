package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// Against looking at all: nearest is never later than the earliest deadline, and
// is that one where deadlines are in order.
func TestNearestDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		q.nearest = Forever
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
			earliest, ordered := Forever, true
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

// Pacing releases a hundred times a window. A long queue is not walked along each
// time, and yet nobody waits on after a deadline, though releases come late.
func TestALongQueueIsNotJudgedAtEverySlice(t *testing.T) {
	const wait = 2 * time.Second
	refused := map[*Waiter]int64{}
	var now int64
	g := NewGate(&fixedShare{100, Pacing{Even: true}}, 0, func(w *Waiter, _ Grant, v Verdict) {
		if v == Limited {
			refused[w] = now
		}
	})
	g.Changed(clock.Instant{})
	judged, before := 0, int64(-1)
	var waiters []*Waiter
	for ms := range int64(6000) {
		now = ms * int64(time.Millisecond)
		at := clock.Instant{Mono: now, Wall: now}
		if ms < 3000 || ms >= 3400 { // the process stands still for a while
			w := &Waiter{}
			if _, v, _ := g.Wait(at, w, 1, now+int64(wait)); v == Queued {
				waiters = append(waiters, w)
			}
			if g.Wake() <= now {
				g.Tick(at)
			}
		}
		if g.mu.judge != before {
			judged, before = judged+1, g.mu.judge
		}
	}
	if most := 6*judgements + 12; judged > most {
		t.Errorf("all waiters were judged %d times in 6 windows, more than %d", judged, most)
	}
	if len(refused) == 0 {
		t.Error("nobody was refused: the process never stood still")
	}
	for w, at := range refused {
		if late := time.Duration(at - w.deadline); late > 500*time.Millisecond {
			t.Errorf("refused %v after the deadline", late)
		}
	}
	for _, w := range waiters {
		if w.queued && w.deadline < now-int64(time.Second)/judgements {
			t.Errorf("waits since %v after its deadline", time.Duration(now-w.deadline))
		}
	}
}
