package queue

import "github.com/quotient-limiter/quotient/internal/clock"

// Queue holds waiters in the order in which they are served: higher classes first, and waiters of one class in
// the order in which they came. The zero Queue is empty. A nil *Queue is, too: only Push needs one that is not
// nil. Its owner's lock guards it, and its waiters with it. Appending and removing anywhere cost O(1).
type Queue struct {
	lanes [Classes]lane
}

// Push adds a waiter of class c that wants n permits by a deadline, a monotonic instant. large says that it wants
// more than the own share, so that this alone does not serve it.
func (q *Queue) Push(w *Waiter, n, deadline int64, c Class, large bool) {
	q.lanes[c].crowd.mayGiveBack(w, deadline)
	w.n, w.deadline, w.class, w.large = n, deadline, c, large
	q.lanes[c].push(w)
}

// Remove takes a waiter out; false if it is in no queue.
func (q *Queue) Remove(w *Waiter) bool {
	if q == nil || w.place != queued {
		return false
	}
	q.lanes[w.class].remove(w)
	return true
}

// RemoveIf takes out each waiter for which out is true, asking in order. told is called for each of them, after
// it was taken out and before out is called for the next.
func (q *Queue) RemoveIf(out func(*Waiter) bool, told func(*Waiter)) {
	for i := range q.lanes {
		q.lanes[i].removeIf(out, told)
	}
}

// RemoveOverdue takes out the waiters whose deadline is at the instant now or before it. told is called for each
// of them, after it was taken out.
func (q *Queue) RemoveOverdue(now int64, told func(*Waiter)) {
	for i := range q.lanes {
		q.lanes[i].removeOverdue(now, told)
	}
}

// All goes over the waiters in order. The one that is seen may be removed meanwhile, and no other.
func (q *Queue) All(yield func(*Waiter) bool) {
	if q == nil {
		return
	}
	for i := range q.lanes {
		for w := q.lanes[i].head; w != nil; {
			next := w.next
			if !yield(w) {
				return
			}
			w = next
		}
	}
}

// Head returns the waiter that is served next, or nil.
func (q *Queue) Head() *Waiter {
	if q == nil {
		return nil
	}
	for i := range q.lanes {
		if w := q.lanes[i].head; w != nil {
			return w
		}
	}
	return nil
}

// Last returns the waiter that is served last, or nil.
func (q *Queue) Last() *Waiter {
	if q == nil {
		return nil
	}
	for i := range q.lanes {
		if w := q.lanes[Classes-1-i].tail; w != nil {
			return w
		}
	}
	return nil
}

// Len returns how many wait.
func (q *Queue) Len() int { return q.first(Classes) }

// Ahead returns how many come before a newcomer of class c.
func (q *Queue) Ahead(c Class) int { return q.first(c + 1) }

// first returns how many waiters of the highest classes there are, of so many classes.
func (q *Queue) first(classes Class) (n int) {
	if q == nil {
		return 0
	}
	for i := range q.lanes[:classes] {
		n += q.lanes[i].length
	}
	return n
}

// LenOf returns how many of class c wait.
func (q *Queue) LenOf(c Class) int {
	if q == nil {
		return 0
	}
	return q.lanes[c].length
}

// Permits returns for how many permits they wait.
func (q *Queue) Permits() (n int64) {
	for c := range Class(Classes) {
		n = Sum(n, q.PermitsOf(c))
	}
	return n
}

// PermitsOf returns for how many permits those of class c wait.
func (q *Queue) PermitsOf(c Class) int64 {
	if q == nil {
		return 0
	}
	return q.lanes[c].crowd.permits
}

// Large returns for how many permits the large ones of class c and of higher ones wait.
func (q *Queue) Large(c Class) (permits int64) {
	if q == nil {
		return 0
	}
	for i := range q.lanes[:c+1] {
		permits = Sum(permits, q.lanes[i].large)
	}
	return permits
}

// Before returns how many permits are surely issued to those that wait before n are to a newcomer of class c that waits
// until the monotonic instant until. If passes is true, callers that want more may be passed.
func (q *Queue) Before(n, until int64, c Class, passes bool) (permits int64) {
	for i := range q.lanes[:c+1] {
		permits = Sum(permits, q.lanes[i].crowd.Before(n, until, passes))
	}
	return permits
}

// Nobody returns an empty Crowd for waiters of the queue.
func (q *Queue) Nobody() Crowd {
	c := Crowd{from: clock.Forever}
	for i := range q.lanes {
		if l := &q.lanes[i].crowd; l.unsure > 0 {
			c.from = min(c.from, l.from)
		}
	}
	return c
}

// Nearest is a monotonic instant that is no later than the earliest deadline; Forever if nobody waits.
func (q *Queue) Nearest() int64 {
	at := clock.Forever
	for i := range q.lanes {
		if q.lanes[i].head != nil {
			at = min(at, q.lanes[i].nearest)
		}
	}
	return at
}

// Largest returns the most permits that one waiter wants.
func (q *Queue) Largest() (n int64) {
	for w := range q.All {
		n = max(n, w.n)
	}
	return n
}
