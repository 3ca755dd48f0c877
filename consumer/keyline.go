package consumer

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/consumer/internal/alarm"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// A key's line is where callers wait for permits of the key: because it has too few, because others came before
// them, or because they want so much that others have to lend some (window.Line). The lock of the key's state
// guards it. A caller leaves the line when it gives up, or when it is told its outcome:
//
//	Granted    the key's permits are reserved for it; it goes on to the gate for the provider's
//	Limited    they do not come in time
//	Displaced  a caller of a higher class took its place
//	Closed     it is to start again: keys may have no limits now, or its limiter may be closed
//
// A line is served when permits of its key may have come: some were given back, borrowed, or taken from etcd; and after
// a caller has left it.
// One alarm serves all lines: at the next edge of a window, at the next deadline, and after a new plan. A line in which
// the first caller's claim ends (window.Line) is served by a look at its key: see keyAsks.

// keyLines are the lines of all keys for which callers wait.
type keyLines struct {
	// length counts the callers in all lines, and those inside enter: whoever brings permits of a key
	// while it is 0 need not look for callers.
	length  atomic.Int64
	byClass [queue.Classes]atomic.Int64 // the callers in all lines
	alarm   alarm.Alarm

	mu   sync.Mutex             // guards keys; no other lock is taken under it
	keys map[*keyState]struct{} // those whose line is not empty
}

// enter decides about a caller that did not get the n permits that it wants of a key: the key had too few, others
// wait for them, or its call is large. Queued says that it waits in the line, and will be told an outcome: at the
// monotonic instant until at the latest. Any other verdict is its outcome at once: Granted, Limited or Closed, as
// above, or Full. If Options.MaxWaiters callers wait for keys, it takes the place of the last one in this line if
// that is of a lower class than c; otherwise it gets Full. w is in no queue, and has its Owner and Payload;
// with another verdict than Queued it is the caller's again. The caller of enter holds no lock of a key, nor the gate's.
func (q *keyLines) enter(k *core, y *keyState, w *queue.Waiter, n, until int64, c queue.Class) queue.Verdict {
	q.length.Add(1) // before it decides: whoever brings permits after that has the line served
	v, again := q.push(k, y, w, n, until, c)
	switch {
	case v != queue.Queued:
		q.length.Add(-1)
	case again:
		q.serve(k, y)
	}
	return v
}

// push is the part of enter under the state's lock. again says that the line is to be served: the caller is before others
// that are in it, or there is a new plan, which may have had all lines served when this one was empty.
func (q *keyLines) push(k *core, y *keyState, w *queue.Waiter, n, until int64, c queue.Class) (v queue.Verdict, again bool) {
	s, now := y.lock(k)
	defer y.mu.Unlock()
	if y.came { // before those that wait have what has come, it gets nothing
		q.serveHeld(k, y, s, now)
	}
	l, large := y.lineNow(k, now), y.large(k, n)
	l.Newcomer(c)
	if v = y.decide(k, s, now, n, until, l.Fits(n, 0, c, large)); v == queue.Granted {
		l.Served(w, n, large)
	}
	if most := k.options.Load().MaxWaiters; v == queue.Queued && most > 0 && q.waiting() >= most {
		if last := y.line.Last(); last != nil && last.Class() > c {
			q.tell(k, y, last, queue.Displaced)
		} else {
			v = queue.Full
		}
	}
	if v != queue.Queued {
		return v, false
	}
	if y.line == nil {
		y.line = &queue.Queue{}
		q.add(y)
	}
	y.line.Push(w, n, until, c, large)
	q.byClass[c].Add(1)
	l = y.lineNow(k, now)
	l.Entered(w)
	y.serveAgain(k, &l)
	q.alarm.Set(k.clock, min(until, s.Keys.Opens(now)))
	return v, !s.Open(now) || y.line.Head() == w && y.line.Len() > 1
}

// lineNow returns the key's line at the monotonic instant now. y.mu is held.
func (y *keyState) lineNow(k *core, now int64) window.Line {
	var f plans.Fleet
	if y.borrows() {
		f = y.fleet(k)
	}
	return y.use.Line(y.line, f, now)
}

// serveAgain has the line served at the instant that Line.Again says. y.mu is held.
func (y *keyState) serveAgain(k *core, l *window.Line) {
	if at := l.Again(); at < clock.Forever {
		k.keys.asks.schedule(k, y, at)
	}
}

// large reports whether a call for n permits of the key is large: it wants more than this instance's share, and more
// than an equal part of the limit, so that it needs loans. None is where nothing can be borrowed. y.mu is held, and core.mu
// is not.
func (y *keyState) large(k *core, n int64) bool {
	return n > 1 && y.borrows() && n > y.use.Own() && n > y.use.MostSmall(y.totals(k))
}

// add notes that a key's line is not empty any more. The caller has the state's lock.
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

// decide decides about a caller that wants n permits of the key by the monotonic instant until, and does what follows
// from that. fits says that there are so many for it: see window.Line.Fits.
//
//	Granted  they were there, and decide has reserved them
//	Queued   they may come in time, and decide has had other instances or etcd asked for some, or they are
//	         reserved for calls that may give them back (keyState.judge); or the limits are not known yet
//	Limited  they do not come in time, or no window holds so many
//	Closed   the state was forgotten, or keys have no limits any more
//
// The caller of decide has the state's lock.
func (y *keyState) decide(k *core, s *window.Segment, now, n, until int64, fits bool) queue.Verdict {
	if s.Keys == nil || y.gone {
		return queue.Closed
	}
	if fits {
		y.use.Reserve(n)
		return queue.Granted
	}
	switch {
	case until <= now:
		return queue.Limited
	case s.Keys.Unheard: // nobody has told the limits; the first view has the line served: see keys.planned
		return queue.Queued
	case k.tooLarge(s.Keys, y.key, n, now) > 0:
		return queue.Limited
	}
	y.noteLack(k, 0, queue.Default, false, n, now) // n are wanted; none is refused yet, so the class counts for nothing
	if y.earliest(k, n, now) > until {
		// Neither loans nor etcd help in time. What is left is the own share of a window that begins by then; an instance
		// has none of a key that is another's. One that joins has its first share, and with it the key, later.
		opens := y.opens(k, n, now)
		if opens > until || y.use.Own() == 0 && k.joinsAfter(until) || y.elsewhereAt(k, opens) && y.elsewhereAt(k, min(until, now+int64(farAhead))) {
			if !y.use.MayReturn(n) {
				return queue.Limited
			}
			y.judge = true
		}
	}
	return queue.Queued
}

// joinsAfter reports whether this instance has no share yet, and has its first one after the monotonic instant until, if
// there is no news.
func (k *core) joinsAfter(until int64) bool {
	now := k.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	wall, ok := k.mu.planner.Begins()
	return ok && wall-k.clock.Offset() > until && k.mu.planner.State(now) == quota.StateJoining
}

// farAhead is longer than any instance that is registered waits for its first share.
const farAhead = 24 * time.Hour

// waiting returns how many callers wait in all lines.
func (q *keyLines) waiting() (n int) {
	for i := range q.byClass {
		n += int(q.byClass[i].Load())
	}
	return n
}

// serve decides again about each waiter of a key, in order, and tells their outcome to those that have one
// now. For the others it sets the alarm. It takes the state's lock: its caller holds none of a key, nor the
// gate's.
func (q *keyLines) serve(k *core, y *keyState) {
	if q.length.Load() == 0 {
		return
	}
	s, now := y.lock(k)
	defer y.mu.Unlock()
	if y.line != nil {
		q.serveHeld(k, y, s, now)
	}
}

// brought is called where permits of the key may have come, with y.mu held. It lets go of that, and has those that wait
// for the key served.
func (q *keyLines) brought(k *core, y *keyState) {
	waits := y.line != nil
	y.came = waits // whoever has the lock before serve has the line served first
	y.mu.Unlock()
	if waits {
		q.serve(k, y)
	}
}

// serveHeld is the part of serve under the state's lock, by the segment s at the instant now.
func (q *keyLines) serveHeld(k *core, y *keyState, s *window.Segment, now int64) {
	y.judge = false
	wake, l := clock.Forever, y.lineNow(k, now)
	l.Begin()
	for w := range y.line.All {
		n, large := w.N(), w.Large()
		switch v := y.decide(k, s, now, n, w.Deadline(), l.Fits(n, 0, w.Class(), large)); v {
		case queue.Queued:
			l.Pass(w)
			wake = min(wake, w.Deadline(), s.Keys.Opens(now))
			continue
		case queue.Granted:
			l.Served(w, n, large)
			fallthrough
		default:
			q.tell(k, y, w, v)
		}
	}
	y.came = false
	y.serveAgain(k, &l)
	q.alarm.Set(k.clock, wake)
}

// serveAll is serve for each key.
func (q *keyLines) serveAll(k *core) {
	for _, y := range q.all() {
		q.serve(k, y)
	}
}

// serveDue is serve if the line is to be served again (Account.Again) by the monotonic instant now.
func (q *keyLines) serveDue(k *core, y *keyState, now int64) {
	if q.length.Load() == 0 {
		return
	}
	y.hold(&k.keys)
	due := y.use.Again() <= now
	y.mu.Unlock()
	if due {
		q.serve(k, y)
	}
}

// tell takes a waiter out of a key's line, and tells it the outcome. The caller has the state's lock.
func (q *keyLines) tell(k *core, y *keyState, w *queue.Waiter, v queue.Verdict) {
	q.remove(k, y, w)
	k.told(w, &lineOutcomes[v])
}

// lineOutcomes are the outcomes of waiters in lines, by verdict: made once, as all are told the same.
var lineOutcomes = func() (all [queue.Closed + 1]queue.Outcome) {
	for v := range all {
		all[v].Verdict = queue.Verdict(v)
	}
	return all
}()

// remove takes a waiter out of a key's line; false if it was told before. The caller has the state's lock.
func (q *keyLines) remove(k *core, y *keyState, w *queue.Waiter) bool {
	if !y.line.Remove(w) {
		return false
	}
	y.use.LineLeft(y.line, k.clock.Mono())
	q.length.Add(-1)
	q.byClass[w.Class()].Add(-1)
	y.came = true
	if y.line.Len() == 0 {
		y.line, y.came = nil, false
		q.mu.Lock()
		delete(q.keys, y)
		q.mu.Unlock()
	}
	return true
}

// cancel takes a waiter that gives up out of a key's line; false if it was told before. The caller of cancel
// holds no lock of a key, nor the gate's.
func (q *keyLines) cancel(k *core, y *keyState, w *queue.Waiter) bool {
	y.hold(&k.keys)
	gone := q.remove(k, y, w)
	q.brought(k, y) // those behind it may be first now
	return gone
}

// evict has the callers of one limiter, which was closed, start again: each then finds that, and gets
// ErrClosed. owner is the limiter's number (queue.Waiter.Owner). The caller of evict holds no lock of a key, nor the
// gate's.
func (q *keyLines) evict(k *core, owner uint32) {
	for _, y := range q.all() {
		y.hold(&k.keys)
		for w := range y.line.All {
			if w.Owner == owner {
				q.tell(k, y, w, queue.Closed)
			}
		}
		q.brought(k, y) // those behind them may be first now
	}
}

// tooLarge returns 0 if each limit of the key may have a window that holds n permits for one call, or if nobody
// knows. If not, it returns the most that one call can have: the least by all limits of the key. Of a short limit
// that is the whole limit where instances lend, and otherwise what this instance's share often is. Of a long limit it
// is the whole limit. One permit is never too many. now is monotonic; core.mu is not held.
func (k *core) tooLarge(keys *plans.Keys, key share.Key, n, now int64) (most int64) {
	if n == 1 || keys == nil {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	most = shape.Unbounded
	for _, w := range keys.Running {
		b := k.mu.planner.Bound(key, w, now)
		switch {
		case b.Permits == shape.Unbounded: // the key has no limit of this length
		case keys.Lending.Borrows:
			if total, _ := k.mu.planner.KeyTotal(key, w); total > 0 { // 0: nobody knows, or that is the limit
				most = min(most, total)
			}
		default:
			most = min(most, max(b.Permits, b.Most))
		}
	}
	for _, b := range k.mu.planner.KeyBudgets(key, now) { // the long limits
		most = min(most, b.Permits)
	}
	if n <= most {
		return 0
	}
	return most
}
