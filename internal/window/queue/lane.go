package queue

import (
	"math"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// lane holds the waiters of one class in the order in which they came.
type lane struct {
	head, tail *Waiter
	length     int
	crowd      Crowd
	large      int64 // the sum of n over the large waiters
	// nearest is no later than the earliest deadline in the lane; serving and
	// cancelling can leave it too early, which only costs a needless look.
	nearest int64
	// unordered says that a deadline may be earlier than one before it, which
	// callers with one and the same patience never make. Otherwise the head's is
	// the earliest.
	unordered bool
}

func (q *lane) push(w *Waiter) {
	w.next, w.prev, w.place = nil, q.tail, queued
	if q.tail == nil {
		q.head, q.nearest = w, w.deadline
	} else {
		q.tail.next = w
		q.unordered = q.unordered || w.deadline < q.tail.deadline
		q.nearest = min(q.nearest, w.deadline)
	}
	q.tail = w
	q.length++
	if q.crowd.Join(w); w.large {
		q.large = Sum(q.large, w.n)
	}
}

func (q *lane) remove(w *Waiter) {
	if w.place = outside; w.prev == nil {
		w.place, q.head = wentFirst, w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
	q.length--
	if q.crowd.leave(w); w.large {
		q.large -= w.n
	}
	if q.length == 0 {
		q.crowd, q.large, q.nearest, q.unordered = Crowd{}, 0, clock.Forever, false
	} else if !q.unordered {
		q.nearest = q.head.deadline
	}
}

// removeIf is Queue.RemoveIf for one class. It finds the nearest deadline of the rest.
func (q *lane) removeIf(out func(*Waiter) bool, told func(*Waiter)) {
	nearest, last, ordered := clock.Forever, int64(math.MinInt64), true
	q.unordered = true // until all were seen: a removal says nothing of the rest
	for w := q.head; w != nil; {
		next := w.next
		if out(w) {
			q.remove(w)
			told(w)
		} else {
			nearest = min(nearest, w.deadline)
			ordered, last = ordered && w.deadline >= last, w.deadline
		}
		w = next
	}
	q.nearest, q.unordered = nearest, !ordered
}

// removeOverdue is Queue.RemoveOverdue for one class.
func (q *lane) removeOverdue(now int64, told func(*Waiter)) {
	if q.unordered && q.nearest <= now {
		q.removeIf(func(w *Waiter) bool { return w.deadline <= now }, told)
	}
	for w := q.head; w != nil && w.deadline <= now; w = q.head {
		q.remove(w)
		told(w)
	}
}
