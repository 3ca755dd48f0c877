package queue

import "math"

// Crowd is how many permits some callers want together. The zero Crowd is nobody.
type Crowd struct {
	permits int64 // all of them
	unsure  int64 // those of Unsure ones
	ones    int64 // those that want one each, but for Unsure ones
	most    int64 // one of them wants so many, or did since nobody waited
}

// Join adds a waiter.
func (c *Crowd) Join(w *Waiter) {
	c.permits, c.most = Sum(c.permits, w.n), max(c.most, w.n)
	switch {
	case w.Unsure:
		c.unsure = Sum(c.unsure, w.n)
	case w.n == 1:
		c.ones++
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

// Before returns how many of the crowd's permits are surely issued before n are to a caller behind it. If
// passes is true, callers that want more may be passed.
func (c *Crowd) Before(n int64, passes bool) int64 {
	if c.most <= n || !passes {
		return c.permits - c.unsure
	}
	return c.ones
}

// Sum adds two numbers of permits that are not negative. It is the largest int64 where they are too many.
func Sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
