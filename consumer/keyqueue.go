package consumer

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// keyQueue has the callers that wait for permits of keys, of all keys in one, in the order
// in which they came. A caller leaves it with the key's permits reserved, and then waits in
// the gate's queue. The queue is served when permits of a key come back, and by the alarm.
type keyQueue struct {
	// length is raised before a caller looks whether it has to wait. So a plan that gives it
	// more, and a permit that comes back, are seen by it, or see it and serve the queue, whose
	// lock it has while it looks.
	length atomic.Int64
	alarm  alarm

	mu    sync.Mutex
	list  list.List // of *keyWaiter
	round uint64    // of serve
}

// keyWaiter is a caller in the queue.
type keyWaiter struct {
	state   *keyState
	n       int64
	until   int64  // monotonic
	owner   uint32 // its limiter
	outcome chan waited
	place   *list.Element
	// hopes says that only others' permits can serve it in time.
	hopes bool
}

// waited is the outcome of waiting for a key.
type waited uint8

const (
	stays    waited = iota // it waits on
	reserved               // the key's permits are kept for the caller
	refused                // none come in time
	tooLarge               // the key's share never holds so many
	full                   // the queue has no place
	again                  // everything is different: look again
)

// waitForKey waits until n permits of a key are reserved. ok is false, without an error,
// if the caller has to look again.
func (l *Limiter) waitForKey(ctx context.Context, y *keyState, n, until int64) (ok bool, err error) {
	k := l.core
	q, began := &k.keys.waiting, k.clock.Mono()
	w := &keyWaiter{state: y, n: n, until: until, owner: l.all.id, outcome: make(chan waited, 1)}
	v := q.enter(k, w)
	if v == stays {
		if l.all.closed.Load() { // Close may have looked before the waiter came
			q.evict(k, l.all.id)
		}
		select {
		case v = <-w.outcome:
		case <-ctx.Done():
			err = ctx.Err()
			switch {
			case q.cancel(w):
				q.serve(k, y) // others of the key may have been behind it
			case <-w.outcome == reserved:
				k.unreserve(y, n)
			}
		}
		defer func() {
			f := l.all.onWait
			if f == nil || err == nil && !ok {
				return
			}
			lost := ok // if f panics
			defer func() {
				if lost {
					k.unreserve(y, n)
				}
			}()
			f(ctx, time.Duration(k.clock.Mono()-began), err)
			lost = false
		}()
	}
	switch {
	case err != nil:
	case v == refused:
		err = l.refuseKey(y, n)
	case v == tooLarge:
		l.refusedKey(y, n, all)
		err = TooLargeError{k.provider, n, k.largestOf(y)}
	case v == full:
		err = l.answer(window.Full, n)
	}
	return v == reserved && err == nil, err
}

// enter puts a waiter into the queue (stays), unless it need not or must not wait.
func (q *keyQueue) enter(k *core, w *keyWaiter) waited {
	q.length.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	s, now := k.segmentNow()
	v := q.outcomeOf(k, w, s, now, q.round)
	if v == stays && !w.hopes && w.state.opens(w.n, now) > w.until {
		if w.hopes = w.state.hopes(k, s.Keys, w.n, now); !w.hopes {
			v = refused
		}
	}
	if most := k.options.Load().MaxWaiters; v == stays && most > 0 && q.list.Len() >= most {
		v = full
	}
	if v != stays {
		q.length.Add(-1)
		return v
	}
	w.place = q.list.PushBack(w)
	w.state.waits(1, w.n)
	q.alarm.set(k.clock, min(w.until, s.Keys.Opens(now)))
	return v
}

// outcomeOf returns the outcome for a waiter as of a segment and an instant. It is the turn of
// one whose key was not blocked in this round of the queue.
func (q *keyQueue) outcomeOf(k *core, w *keyWaiter, s *window.Segment, now int64, round uint64) waited {
	y := w.state
	if s.Keys == nil {
		return again
	}
	y.mu.Lock()
	y.adopt(k, s.Keys, now)
	first := w.place == nil && y.waiters == 0 || w.place != nil && y.blocked != round
	gone, served := y.gone, first && y.use.Left() >= w.n
	_, elsewhere := y.ownerIn(k, s.Keys, now)
	hopeless := false
	if served && !gone {
		y.use.Reserve(w.n)
	} else if hopes := y.lacks(k, s.Keys, 0, w.n, now); elsewhere || w.hopes {
		w.hopes, hopeless = hopes, !hopes
	} else if end, _ := y.use.SpentUntil(w.n); end != 0 {
		hopeless = y.use.Opens(w.n, now) > w.until
	}
	y.mu.Unlock()
	switch {
	case gone:
		return again
	case served:
		return reserved
	case w.until <= now, hopeless: // nobody lends in time
		return refused
	case w.n > 1:
		if most := k.largestOf(y); most > 0 && w.n > most {
			return tooLarge
		}
	}
	y.blocked = round
	return stays
}

// serve tells all the waiters their outcome that have one by now, in order; of one key, if
// it is not nil.
func (q *keyQueue) serve(k *core, of *keyState) {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if of != nil && of.waiters == 0 { // a caller that comes has the lock until it is counted
		return
	}
	s, now := k.segmentNow()
	q.round++
	wake := window.Forever
	for e := q.list.Front(); e != nil; {
		w := e.Value.(*keyWaiter)
		if e = e.Next(); of != nil && w.state != of {
			continue
		}
		if v := q.outcomeOf(k, w, s, now, q.round); v == stays {
			wake = min(wake, w.until, s.Keys.Opens(now))
		} else {
			q.tell(w, v)
		}
	}
	if wake < window.Forever {
		q.alarm.set(k.clock, wake)
	}
}

// tell takes a waiter out and tells it the outcome.
func (q *keyQueue) tell(w *keyWaiter, v waited) {
	q.remove(w)
	w.outcome <- v
}

func (q *keyQueue) remove(w *keyWaiter) {
	q.list.Remove(w.place)
	w.place = nil
	w.state.waits(-1, -w.n)
	q.length.Add(-1)
}

// cancel takes a waiter out; false if it was told before.
func (q *keyQueue) cancel(w *keyWaiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.place == nil {
		return false
	}
	q.remove(w)
	return true
}

// evict has the callers of one limiter look again.
func (q *keyQueue) evict(k *core, owner uint32) {
	defer q.serve(k, nil) // others may have been behind them
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.list.Front(); e != nil; {
		w := e.Value.(*keyWaiter)
		if e = e.Next(); w.owner == owner {
			q.tell(w, again)
		}
	}
}

// waits counts callers of the key in the queue. A caller counts for the largest limit at most,
// so that the sum does not overflow.
func (y *keyState) waits(by int32, permits int64) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.waiters, y.waiting = y.waiters+by, y.waiting+max(-quota.MaxPermits, min(permits, quota.MaxPermits))
}

// largestOf returns the most permits that the shares of a key often hold, or its total if
// others lend; 0 if it has none.
func (k *core) largestOf(y *keyState) int64 {
	s, now := k.segmentNow()
	if s.Keys == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most := window.Unbounded
	for _, w := range s.Keys.Windows {
		b := k.mu.planner.KeyBound(y.key, w, now)
		switch {
		case b.Permits == window.Unbounded:
		case s.Keys.Lending.Borrows:
			most = min(most, k.mu.planner.KeyTotal(y.key, w))
		default:
			most = min(most, max(b.Permits, b.Most))
		}
	}
	for _, b := range k.mu.planner.KeyBudgets(y.key, now) {
		most = min(most, b.Permits)
	}
	if most == window.Unbounded {
		return 0
	}
	return most
}
