package consumer

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// Callers that a key has too few permits for wait in its line, which the state's lock guards. They leave
// it with the key's permits reserved. A line is served when permits of its key come back or are lent. One
// alarm serves all lines: at the next edge of a window, at the next deadline, and after a new plan.

// keyLines are the keys for which callers wait.
type keyLines struct {
	// length counts the callers in all lines, and those inside enter; by counts the callers in all
	// lines, by class.
	length atomic.Int64
	by     [window.Classes]atomic.Int64
	alarm  alarm

	mu   sync.Mutex // guards keys; nothing else is locked while it is
	keys map[*keyState]struct{}
}

// enter puts a caller into a key's line, until the monotonic instant until (Queued). Granted says that
// its n permits are reserved, and Limited that they do not come in time. Closed says that it has to start
// again. If Options.MaxWaiters callers wait, the caller takes the place of the key's last one of a lower
// class; if there is none, the verdict is Full.
func (q *keyLines) enter(k *core, y *keyState, w *window.Waiter, n, until int64, c window.Class) window.Verdict {
	q.length.Add(1) // so permits that come back have the line served
	s, now, v := q.push(k, y, w, n, until, c)
	switch {
	case v != window.Queued:
		q.length.Add(-1)
	case !s.Open(now): // a new plan had all lines served, perhaps before this one was among them
		q.serve(k, y)
	}
	return v
}

// push is the part of enter under the state's lock. It returns the segment and the instant by which it
// decided.
func (q *keyLines) push(k *core, y *keyState, w *window.Waiter, n, until int64, c window.Class) (s *window.Segment, now int64, v window.Verdict) {
	s, now = y.lock(k)
	defer y.mu.Unlock()
	callers, _ := y.line.Ahead(c)
	v = y.verdict(k, s, now, n, until, callers == 0)
	if most := k.options.Load().MaxWaiters; v == window.Queued && most > 0 && q.waiting() >= most {
		if last := y.line.Last(); last != nil && last.Class() > c {
			q.tell(k, y, last, window.Displaced)
		} else {
			v = window.Full
		}
	}
	if v != window.Queued {
		return s, now, v
	}
	if y.line == nil {
		y.line = &window.Line{}
		q.add(y)
	}
	y.line.Push(w, n, until, c, n > 1 && n > y.use.Own())
	q.by[c].Add(1)
	q.alarm.set(k.clock, min(until, s.Keys.Opens(now)))
	return s, now, v
}

func (q *keyLines) add(y *keyState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keys == nil {
		q.keys = map[*keyState]struct{}{}
	}
	q.keys[y] = struct{}{}
}

// all returns the keys for which callers wait.
func (q *keyLines) all() []*keyState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.keys))
}

// verdict decides about a caller that wants n permits of the key. Granted: they are reserved. Queued: they
// may come in time, and others are asked for some; or nobody has told yet what the limits are. Limited:
// they do not come by the monotonic instant until, or no window holds so many. Closed: the state was
// forgotten, or keys have no limits. first says that nobody is before the caller. The caller of verdict has
// the state's lock.
func (y *keyState) verdict(k *core, s *window.Segment, now, n, until int64, first bool) window.Verdict {
	if s.Keys == nil || y.gone {
		return window.Closed
	}
	if first && y.use.Left() >= n {
		y.use.Reserve(n)
		return window.Granted
	}
	switch {
	case until <= now:
		return window.Limited
	case s.Keys.Unheard: // the first view wakes it: see keys.planned
		return window.Queued
	case k.tooLarge(s.Keys, y.key, n, now) > 0:
		return window.Limited
	}
	y.lacks(k, 0, window.Default, n, now)
	if y.earliest(k, n, now) > until { // nobody lends in time
		if _, elsewhere := y.ownerIn(k, s.Keys, now); elsewhere || y.use.Opens(n, now) > until {
			return window.Limited
		}
	}
	return window.Queued
}

// waiting returns how many callers wait for keys.
func (q *keyLines) waiting() (n int) {
	for i := range q.by {
		n += int(q.by[i].Load())
	}
	return n
}

// waiting returns for how many permits callers wait, or the largest limit if they want more: sums of it
// do not overflow. The caller has the state's lock.
func (y *keyState) waiting() int64 { return min(y.line.Permits(), quota.MaxPermits) }

// serve tells the waiters of a key their outcome that have one by now, in order.
func (q *keyLines) serve(k *core, y *keyState) {
	if q.length.Load() == 0 {
		return
	}
	s, now := y.lock(k)
	defer y.mu.Unlock()
	wake, first := window.Forever, true
	y.line.Each(func(w *window.Waiter) bool {
		if v := y.verdict(k, s, now, w.N(), w.Deadline(), first); v != window.Queued {
			q.tell(k, y, w, v)
		} else {
			first, wake = false, min(wake, w.Deadline(), s.Keys.Opens(now))
		}
		return true
	})
	q.alarm.set(k.clock, wake)
}

// serveAll is serve for all keys.
func (q *keyLines) serveAll(k *core) {
	for _, y := range q.all() {
		q.serve(k, y)
	}
}

// tell takes a waiter out and tells it the outcome. The caller has the state's lock.
func (q *keyLines) tell(k *core, y *keyState, w *window.Waiter, v window.Verdict) {
	q.remove(y, w)
	k.told(w, &lineOutcomes[v])
}

// lineOutcomes are what those that wait for a key are told, by verdict.
var lineOutcomes = func() (all [window.Closed + 1]window.Outcome) {
	for v := range all {
		all[v].Verdict = window.Verdict(v)
	}
	return all
}()

// remove takes a waiter out of a key's line; false if it was told before. The caller has the state's lock.
func (q *keyLines) remove(y *keyState, w *window.Waiter) bool {
	if !y.line.Remove(w) {
		return false
	}
	q.length.Add(-1)
	q.by[w.Class()].Add(-1)
	if y.line.Len() == 0 {
		y.line = nil
		q.mu.Lock()
		delete(q.keys, y)
		q.mu.Unlock()
	}
	return true
}

// cancel takes a waiter out of a key's line; false if it was told before.
func (q *keyLines) cancel(k *core, y *keyState, w *window.Waiter) bool {
	y.hold(&k.keys)
	gone := q.remove(y, w)
	y.mu.Unlock()
	if gone {
		q.serve(k, y) // others may have been behind it
	}
	return gone
}

// evict has the callers of one limiter look again.
func (q *keyLines) evict(k *core, owner uint32) {
	for _, y := range q.all() {
		y.hold(&k.keys)
		y.line.Each(func(w *window.Waiter) bool {
			if w.Owner == owner {
				q.tell(k, y, w, window.Closed)
			}
			return true
		})
		y.mu.Unlock()
		q.serve(k, y) // others may have been behind them
	}
}

// tooLarge returns the most permits that one call for a key can have, if n are more: the key's total where
// others lend, or else what its share often holds. If n are not too many, or nobody knows, it returns 0.
func (k *core) tooLarge(keys *window.Keys, key share.Key, n, now int64) (most int64) {
	if n == 1 || keys == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most = window.Unbounded
	for _, w := range keys.Running {
		b := k.mu.planner.KeyBound(key, w, now)
		switch {
		case b.Permits == window.Unbounded:
		case keys.Lending.Borrows:
			if total := k.mu.planner.KeyTotal(key, w); total > 0 { // 0: nobody knows
				most = min(most, total)
			}
		default:
			most = min(most, max(b.Permits, b.Most))
		}
	}
	for _, b := range k.mu.planner.KeyBudgets(key, now) {
		most = min(most, b.Permits)
	}
	if n <= most {
		return 0
	}
	return most
}
