package consumer

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// keyQueue has the callers that wait for permits of keys: a line for each key, in the order in
// which they came. A caller leaves it with the key's permits reserved, and then waits in the
// gate's queue. A line is served when permits of its key come back, and all lines by the alarm.
type keyQueue struct {
	// length is the number of callers in all lines, and one that looks whether it has to wait:
	// it is raised before that. So a plan that gives it more, and a permit that comes back, are
	// seen by it, or see it and serve the queue, whose lock it has while it looks.
	length atomic.Int64 // changed under mu
	alarm  alarm

	mu    sync.Mutex
	lines map[*keyState]*list.List // of *keyWaiter; none is empty
}

// keyWaiter is a caller in the queue.
type keyWaiter struct {
	state   *keyState
	n       int64
	until   int64  // monotonic
	owner   uint32 // its limiter
	large   bool   // it wants more than the own share of the key
	outcome chan waited
	place   *list.Element
}

// waited is the outcome of waiting for a key.
type waited uint8

const (
	stays    waited = iota // it waits on
	reserved               // the key's permits are kept for the caller
	refused                // none come in time, or never so many at once
	full                   // the queue has no place
	again                  // everything is different: look again
)

// didNotWait is the duration of a wait that there was not.
const didNotWait = time.Duration(-1)

// waitForKey waits until n permits of a key are reserved. ok is false, without an error,
// if the caller has to look again. OnWait is told of errors; if ok, it is to be told of d.
func (l *Limiter) waitForKey(ctx context.Context, y *keyState, n, until int64) (d time.Duration, ok bool, err error) {
	k := l.core
	q, began, d := &k.keys.waiting, k.clock.Mono(), didNotWait
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
		d = time.Duration(k.clock.Mono() - began)
	}
	switch {
	case err != nil:
	case v == refused:
		err = l.refuseKey(y, n)
	case v == full:
		err = l.answer(window.Full, n)
	}
	if err != nil {
		l.all.waited(ctx, d, err)
	}
	return d, v == reserved, err
}

// enter puts a waiter into the queue (stays), unless it need not or must not wait.
func (q *keyQueue) enter(k *core, w *keyWaiter) waited {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.length.Add(1)
	s, now := k.segmentNow()
	line := q.lines[w.state]
	v := w.look(k, s, now, line == nil)
	if most := k.options.Load().MaxWaiters; v == stays && most > 0 && q.length.Load() > int64(most) {
		v = full
	}
	if v != stays {
		q.length.Add(-1)
		return v
	}
	if line == nil {
		if line = list.New(); q.lines == nil {
			q.lines = map[*keyState]*list.List{}
		}
		q.lines[w.state] = line
	}
	w.place = line.PushBack(w)
	w.state.waits(w.n, w.large)
	q.alarm.set(k.clock, min(w.until, s.Keys.Opens(now)))
	return v
}

// look returns the outcome as of a segment and an instant. first says that no caller waits for
// the key before this one.
func (w *keyWaiter) look(k *core, s *window.Segment, now int64, first bool) waited {
	y := w.state
	if s.Keys == nil {
		return again
	}
	y.mu.Lock()
	y.adopt(k, s.Keys, now)
	gone, served, hopeless := y.gone, first && y.use.Left() >= w.n, false
	if w.place == nil { // it may enter
		w.large = w.n > 1 && w.n > y.use.Own()
	}
	switch {
	case gone:
	case served:
		y.use.Reserve(w.n)
	case y.lacks(k, 0, w.n, now) > w.until: // nobody lends in time
		_, elsewhere := y.ownerIn(k, s.Keys, now)
		hopeless = elsewhere || y.use.Opens(w.n, now) > w.until
	}
	y.mu.Unlock()
	switch {
	case gone:
		return again
	case served:
		return reserved
	case w.until <= now, hopeless:
		return refused
	}
	if most, _ := k.tooLarge(y.key, w.n); most > 0 {
		return refused
	}
	return stays
}

// of returns how many callers wait for a key, and how many permits the first of them wants.
func (q *keyQueue) of(y *keyState) (callers int, first int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.lines[y]; line != nil {
		return line.Len(), line.Front().Value.(*keyWaiter).n
	}
	return 0, 0
}

// serve tells the waiters of one key their outcome that have one by now, in order; those of all
// keys, if it is nil.
func (q *keyQueue) serve(k *core, of *keyState) {
	if q.length.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if of != nil {
		q.serveLine(k, q.lines[of])
		return
	}
	for _, line := range q.lines {
		q.serveLine(k, line)
	}
}

// serveLine is serve for one line; nil if nobody waits for the key.
func (q *keyQueue) serveLine(k *core, line *list.List) {
	if line == nil {
		return
	}
	s, now := k.segmentNow()
	wake, first := window.Forever, true
	for e := line.Front(); e != nil; {
		w := e.Value.(*keyWaiter)
		e = e.Next()
		if v := w.look(k, s, now, first); v == stays {
			first, wake = false, min(wake, w.until, s.Keys.Opens(now))
		} else {
			q.tell(w, v)
		}
	}
	q.alarm.set(k.clock, wake)
}

// tell takes a waiter out and tells it the outcome.
func (q *keyQueue) tell(w *keyWaiter, v waited) {
	q.remove(w)
	w.outcome <- v
}

func (q *keyQueue) remove(w *keyWaiter) {
	line := q.lines[w.state]
	if line.Remove(w.place); line.Len() == 0 {
		delete(q.lines, w.state)
	}
	w.place = nil
	w.state.waits(-w.n, w.large)
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
	for _, line := range q.lines {
		for e := line.Front(); e != nil; {
			w := e.Value.(*keyWaiter)
			if e = e.Next(); w.owner == owner {
				q.tell(w, again)
			}
		}
	}
}

// waits counts permits for which a caller waits. It counts for the largest limit at most, so
// that the sum does not overflow.
func (y *keyState) waits(permits int64, large bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if permits = max(-quota.MaxPermits, min(permits, quota.MaxPermits)); large {
		y.large += permits
	}
	y.waiting += max(-quota.MaxPermits, min(permits, quota.MaxPermits))
}

// tooLarge returns the most permits that the shares of a key often hold, or its total if
// others lend, if n are more; else 0. limit is the smallest limit of the key that is below n; zero if none is.
func (k *core) tooLarge(key share.Key, n int64) (most int64, limit quota.Limit) {
	s, now := k.segmentNow()
	if n == 1 || s.Keys == nil {
		return 0, limit
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most = window.Unbounded
	note := func(total int64, length time.Duration) {
		if total > 0 && n > total && (limit.Permits == 0 || total < limit.Permits) {
			limit = quota.Limit{Permits: total, Window: length}
		}
	}
	for _, w := range s.Keys.Running {
		b := k.mu.planner.KeyBound(key, w, now)
		note(k.mu.planner.KeyTotal(key, w), w.Length)
		switch {
		case b.Permits == window.Unbounded:
		case s.Keys.Lending.Borrows:
			most = min(most, k.mu.planner.KeyTotal(key, w))
		default:
			most = min(most, max(b.Permits, b.Most))
		}
	}
	for _, b := range k.mu.planner.KeyBudgets(key, now) {
		most = min(most, b.Permits)
		note(b.Permits, b.Window)
	}
	if n <= most {
		return 0, limit
	}
	return most, limit
}
