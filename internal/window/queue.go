package window

import "math"

// Waiter is one place in the queue. The zero Waiter is ready to be handed to
// Gate.Enter once; after it was decided it may be used again.
//
// Its 64 bytes are a class of the allocator: a queue of a million makes 64 MB.
type Waiter struct {
	next, prev *Waiter
	deadline   int64 // monotonic; Forever for none
	n          int64 // permits wanted

	// Owner is the number by which the caller knows its waiters; Gate.Evict removes
	// those of one owner.
	Owner uint32
	// queued is true from Wait until the waiter is served, refused or
	// cancelled. Guarded by the gate's lock.
	queued bool
	// stood says that it was the head at a window's edge, and that only loans serve it.
	stood bool
	// Payload is the caller's means to tell the waiter's owner; a pointer, a
	// channel or a function is stored without allocating.
	Payload any
	// Outcome is the caller's own: its answer to the waiter's owner. The gate does
	// not touch it. Many waiters can share one.
	Outcome *Outcome
}

// Outcome is a waiter's verdict and window.
type Outcome struct {
	Grant   Grant
	Verdict Verdict
}

// N returns the number of permits that the waiter wants.
func (w *Waiter) N() int64 { return w.n }

// Chain links decided waiters, which are in no queue any more, into a list of
// the caller's own: it makes next follow w.
func (w *Waiter) Chain(next *Waiter) { w.next = next }

// Next returns the waiter that was chained to w.
func (w *Waiter) Next() *Waiter { return w.next }

// queue holds waiters in the order in which they came. Guarded by the gate's
// lock. Appending and removing anywhere cost O(1).
type queue struct {
	head, tail *Waiter
	length     int
	permits    int64 // sum of n over all waiters
	// nearest is no later than the earliest deadline in the queue; serving and
	// cancelling can leave it too early, which only costs a needless look.
	nearest int64
	// unordered says that a deadline may be earlier than one before it, which
	// callers with one and the same patience never make. Otherwise the head's is
	// the earliest.
	unordered bool
}

func (q *queue) push(w *Waiter) {
	w.next, w.prev, w.queued, w.stood = nil, q.tail, true, false
	if q.tail == nil {
		q.head, q.nearest = w, w.deadline
	} else {
		q.tail.next = w
		q.unordered = q.unordered || w.deadline < q.tail.deadline
		q.nearest = min(q.nearest, w.deadline)
	}
	q.tail = w
	q.length++
	q.permits = addCapped(q.permits, w.n)
}

func (q *queue) remove(w *Waiter) {
	if w.prev == nil {
		q.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev, w.queued = nil, nil, false
	q.length--
	q.permits -= w.n
	if q.length == 0 {
		q.permits, q.nearest, q.unordered = 0, Forever, false
	} else if !q.unordered {
		q.nearest = q.head.deadline
	}
}

// largest returns the most permits that one waiter wants.
func (q *queue) largest() (n int64) {
	for w := q.head; w != nil; w = w.next {
		n = max(n, w.n)
	}
	return n
}

// addCapped adds two non-negative numbers without overflow.
func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Want sets the number of permits of a waiter that was never queued.
func (w *Waiter) Want(n int64) { w.n = n }
