package window

// Line is where callers wait for the permits of one key: higher classes first, and callers of one
// class in the order in which they came. The zero Line is empty. A nil Line is, too: only Push needs one
// that is not nil. The caller keeps calls apart.
type Line struct{ queue queue }

// Push adds a waiter of class c that wants n permits by a deadline, a monotonic instant. large says that it wants more than
// the own share of its key.
func (l *Line) Push(w *Waiter, n, deadline int64, c Class, large bool) {
	w.n, w.deadline, w.class, w.large = n, deadline, c, large
	l.queue.push(w)
}

// Remove takes a waiter out; false if it is not in the line.
func (l *Line) Remove(w *Waiter) bool {
	if l == nil || w.place != queued {
		return false
	}
	l.queue.remove(w)
	return true
}

// Each calls f for each waiter, in order, until f returns false. f may remove the waiter.
func (l *Line) Each(f func(*Waiter) bool) {
	if l == nil {
		return
	}
	for i := range l.queue.lanes {
		for w := l.queue.lanes[i].head; w != nil; {
			next := w.next
			if !f(w) {
				return
			}
			w = next
		}
	}
}

// Ahead returns how many callers come before a newcomer of class c, and how many permits the first of
// them wants.
func (l *Line) Ahead(c Class) (callers int, first int64) {
	if l == nil {
		return 0, 0
	}
	if callers, _ = l.queue.before(c + 1); callers > 0 {
		first = l.queue.head().n
	}
	return callers, first
}

// Before reports whether somebody comes before a newcomer of class c.
func (l *Line) Before(c Class) bool {
	callers, _ := l.Ahead(c)
	return callers > 0
}

// Last returns the waiter that is served last, or nil.
func (l *Line) Last() *Waiter {
	if l == nil {
		return nil
	}
	return l.queue.last()
}

// Len returns how many callers wait.
func (l *Line) Len() int {
	if l == nil {
		return 0
	}
	return l.queue.length()
}

// Permits returns for how many permits callers wait.
func (l *Line) Permits() int64 {
	if l == nil {
		return 0
	}
	return l.queue.permits()
}

// Of returns for how many permits callers of a class wait.
func (l *Line) Of(c Class) int64 {
	if l == nil {
		return 0
	}
	return l.queue.lanes[c].permits
}

// Large returns for how many permits the large calls of class c and of higher ones wait.
func (l *Line) Large(c Class) int64 {
	if l == nil {
		return 0
	}
	return l.queue.large(c)
}
