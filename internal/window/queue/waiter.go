package queue

import "github.com/quotient-limiter/quotient/internal/clock"

// Waiter is one place in a Queue. The zero Waiter is ready to be pushed once; after it
// was decided it may be used again.
//
// Its 64 bytes are a class of the allocator: a queue of a million makes 64 MB.
type Waiter struct {
	next, prev *Waiter
	deadline   int64 // monotonic; Forever for none
	n          int64 // permits wanted

	// Owner is the number by which the caller knows its waiters, so that those of one
	// owner can be refused together.
	Owner uint32
	// place says whether the waiter is in a queue.
	place place
	// class is that of the call.
	class Class
	// large says that the call wants more than this instance's share, so that this alone does
	// not serve it.
	large bool
	// Unsure says that the caller may give the permits back at once, so that they may be issued to
	// those behind it. MayGiveBack sets it.
	Unsure bool
	// Payload is the caller's means to tell the waiter's owner; a pointer, a
	// channel or a function is stored without allocating.
	Payload any
	// Outcome is the caller's own: its answer to the waiter's owner. The queue does
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

// N returns the number of permits that the waiter wants.
func (w *Waiter) N() int64 { return w.n }

// Deadline returns the monotonic instant by which the waiter wants its permits; Forever for none.
func (w *Waiter) Deadline() int64 { return w.deadline }

// Class returns the class of the waiter's call.
func (w *Waiter) Class() Class { return w.class }

// Large reports whether the waiter was pushed as large.
func (w *Waiter) Large() bool { return w.large }

// WentFirst reports whether the waiter has left a queue, and was the first of its class until then.
func (w *Waiter) WentFirst() bool { return w.place == wentFirst }

// Want sets the number of permits of a waiter that was never queued, and its class.
func (w *Waiter) Want(n int64, c Class) { w.n, w.class = n, c }

// MayGiveBack says of a waiter that is not queued from which monotonic instant on its caller may give the permits back at
// once; clock.Forever if it never does.
func (w *Waiter) MayGiveBack(from int64) { w.Unsure, w.deadline = from != clock.Forever, from }

// Chain links decided waiters, which are in no queue any more, into a list of
// the caller's own: it makes next follow w.
func (w *Waiter) Chain(next *Waiter) { w.next = next }

// Next returns the waiter that was chained to w.
func (w *Waiter) Next() *Waiter { return w.next }
