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
	// place says whether the waiter is in a queue. Guarded by the lock of the queue's owner.
	place place
	// class is that of the call.
	class Class
	// large says that the call wants more than this instance's share, so that only loans
	// serve it.
	large bool
	// Unsure says that the caller may give the permits back at once, so that they may be issued to
	// those behind it.
	Unsure bool
	// Payload is the caller's means to tell the waiter's owner; a pointer, a
	// channel or a function is stored without allocating.
	Payload any
	// Outcome is the caller's own: its answer to the waiter's owner. The gate does
	// not touch it. Many waiters can share one.
	Outcome *Outcome
}

// place is where a waiter is.
type place uint8

const (
	outside   place = iota // in no queue
	queued                 // until it is served, refused or cancelled
	wentFirst              // it has left the queue, and no other of its class was before it
)

// Outcome is a waiter's verdict and window.
type Outcome struct {
	Grant   Grant
	Verdict Verdict
}

// N returns the number of permits that the waiter wants.
func (w *Waiter) N() int64 { return w.n }

// Deadline returns the monotonic instant by which the waiter wants its permits; Forever for none.
func (w *Waiter) Deadline() int64 { return w.deadline }

// Class returns the class of the waiter's call.
func (w *Waiter) Class() Class { return w.class }

// Chain links decided waiters, which are in no queue any more, into a list of
// the caller's own: it makes next follow w.
func (w *Waiter) Chain(next *Waiter) { w.next = next }

// Next returns the waiter that was chained to w.
func (w *Waiter) Next() *Waiter { return w.next }

// queue holds waiters in the order in which they are served: a lane for each class.
// Guarded by its owner's lock. Appending and removing anywhere cost O(1).
type queue struct {
	lanes [Classes]lane
}

// head returns the waiter that is served next, or nil.
func (q *queue) head() *Waiter {
	for i := range q.lanes {
		if w := q.lanes[i].head; w != nil {
			return w
		}
	}
	return nil
}

// last returns the waiter that is served last, or nil.
func (q *queue) last() *Waiter {
	for i := range q.lanes {
		if w := q.lanes[Classes-1-i].tail; w != nil {
			return w
		}
	}
	return nil
}

func (q *queue) push(w *Waiter)   { q.lanes[w.class].push(w) }
func (q *queue) remove(w *Waiter) { q.lanes[w.class].remove(w) }

// length returns how many wait.
func (q *queue) length() int { n, _ := q.before(Classes); return n }

// permits returns for how many permits they wait.
func (q *queue) permits() int64 { _, n := q.before(Classes); return n }

// before returns how many of classes above c wait, and for how many permits.
func (q *queue) before(c Class) (length int, permits int64) {
	for i := range q.lanes[:c] {
		length += q.lanes[i].length
		permits = addCapped(permits, q.lanes[i].permits)
	}
	return length, permits
}

// large returns for how many permits the large calls of classes up to c wait.
func (q *queue) large(c Class) (permits int64) {
	for i := range q.lanes[:c+1] {
		permits = addCapped(permits, q.lanes[i].large)
	}
	return permits
}

// nearest is no later than the earliest deadline; Forever if nobody waits.
func (q *queue) nearest() int64 {
	at := Forever
	for i := range q.lanes {
		if q.lanes[i].head != nil {
			at = min(at, q.lanes[i].nearest)
		}
	}
	return at
}

// largest returns the most permits that one waiter wants.
func (q *queue) largest() (n int64) {
	for i := range q.lanes {
		for w := q.lanes[i].head; w != nil; w = w.next {
			n = max(n, w.n)
		}
	}
	return n
}

// lane holds the waiters of one class in the order in which they came.
type lane struct {
	head, tail *Waiter
	length     int
	crowd
	large int64 // the sum of n over the large waiters
	// nearest is no later than the earliest deadline in the queue; serving and
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
	if q.join(w); w.large {
		q.large = addCapped(q.large, w.n)
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
	if q.leave(w); w.large {
		q.large -= w.n
	}
	if q.length == 0 {
		q.crowd, q.large, q.nearest, q.unordered = crowd{}, 0, Forever, false
	} else if !q.unordered {
		q.nearest = q.head.deadline
	}
}

// crowd is how many permits callers want.
type crowd struct {
	permits int64 // all of them
	unsure  int64 // those of Unsure ones
	ones    int64 // those that want one each, but for Unsure ones
	most    int64 // one of them wants so many, or did since nobody waited
}

func (c *crowd) join(w *Waiter) {
	c.permits, c.most = addCapped(c.permits, w.n), max(c.most, w.n)
	switch {
	case w.Unsure:
		c.unsure = addCapped(c.unsure, w.n)
	case w.n == 1:
		c.ones++
	}
}

func (c *crowd) leave(w *Waiter) {
	c.permits -= w.n
	switch {
	case w.Unsure:
		c.unsure -= w.n
	case w.n == 1:
		c.ones--
	}
}

// before returns how many of its permits are surely issued before n are to a caller behind it. If
// passes is true, callers that want more may be passed.
func (c *crowd) before(n int64, passes bool) int64 {
	if c.most <= n || !passes {
		return c.permits - c.unsure
	}
	return c.ones
}

// addCapped adds two non-negative numbers without overflow.
func addCapped(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Want sets the number of permits of a waiter that was never queued, and its class.
func (w *Waiter) Want(n int64, c Class) { w.n, w.class = n, c }
