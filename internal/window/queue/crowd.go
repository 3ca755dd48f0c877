package queue

import "math"

// Crowd is how many permits some callers want together. The zero Crowd is nobody.
type Crowd struct {
	permits int64 // all of them
	unsure  int64 // those of Unsure ones
	from    int64 // monotonic: no Unsure one gives its permits back before; it means nothing if there is none
	ones    int64 // those that want one each, but for Unsure ones
	most    int64 // one of them wants so many, or did since nobody waited
}

// Join adds a waiter. An Unsure one gives its permits back no sooner than the instant that the crowd has for that.
func (c *Crowd) Join(w *Waiter) {
	c.permits, c.most = Sum(c.permits, w.n), max(c.most, w.n)
	switch {
	case w.Unsure:
		c.unsure = Sum(c.unsure, w.n)
	case w.n == 1:
		c.ones++
	}
}

// mayGiveBack notes that a waiter will join that was told by MayGiveBack when it may give permits back, and waits until a
// deadline. Whoever is not there any more by then gives nothing back.
func (c *Crowd) mayGiveBack(w *Waiter, deadline int64) {
	from := w.deadline
	if w.Unsure = w.Unsure && from <= deadline; w.Unsure && (c.unsure == 0 || from < c.from) {
		c.from = from
	}
}

func (c *Crowd) leave(w *Waiter) {
	c.permits -= w.n
	switch {
	case w.Unsure:
		c.unsure -= w.n
	case w.n == 1:
		c.ones--
	}
}

// Before returns how many of the crowd's permits are surely issued before n are to a caller behind it that waits until the
// monotonic instant until. If passes is true, callers that want more may be passed.
func (c *Crowd) Before(n, until int64, passes bool) int64 {
	switch {
	case passes && c.most > n:
		return c.ones
	case until < c.from:
		return c.permits
	}
	return c.permits - c.unsure
}

// Sum adds two numbers of permits that are not negative. It is the largest int64 where they are too many.
func Sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
