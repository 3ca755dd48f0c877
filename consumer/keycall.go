package consumer

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// keyCall is a call for n permits of a key, on its way. It needs n permits of the key and n of the provider,
// and may wait for both: first in the key's line (keyline.go), until n of the key are reserved for it, and
// then in the queue of the provider's gate, where all calls wait. So a key that is spent holds up no other.
//
//	outside         -> inLine    tried: the key has too few permits, or others wait for it
//	outside         -> inQueue   tried: those of the key are reserved, and the provider has too few
//	inLine          -> inQueue   resume: the same
//	inLine          -> outside   resume: the line says Closed
//	all of these    -> outside   tried, resume: the gate has issued n, but the key does not allow them any
//	                             more, or their window is over
//	all of these    -> finished  tried, resume: with the permit or the error
//	inLine, inQueue -> finished  leave, discard: the caller has given up
//
// A call that is outside again starts again: proceed goes on with tried until it waits or is finished. No
// step blocks. For Acquire and Take the caller's goroutine makes all steps. For TakeFunc it makes tried, the
// dispatcher makes resume and discard, and whoever calls Waiter.Stop makes leave: see keyFunc.
type keyCall struct {
	key     Key
	n       int64
	maxWait time.Duration
	until   int64         // monotonic instant, in nanoseconds, at which it stops waiting
	waiter  *queue.Waiter // its place in the line or the queue; nil until it waits, but for TakeFunc

	place keyPlace
	state *keyState // in whose line it waits, or of which permits are reserved for it
	held  bool      // n permits of state are reserved for it
	began int64     // monotonic instant at which it first had to wait; math.MaxInt64 if it never had

	// The outcome, once it is finished.
	permit Permit
	err    error
}

// keyPlace is where a call is.
type keyPlace uint8

const (
	outside  keyPlace = iota // in neither, about to ask
	inLine                   // in the key's line
	inQueue                  // in the gate's queue
	finished                 // it has its outcome, or has left
)

func newKeyCall(ctx context.Context, y Key, n int64, maxWait time.Duration) keyCall {
	c := keyCall{key: y, n: n, maxWait: maxWait, until: y.limiter.core.clock.Mono(), began: math.MaxInt64}
	if maxWait > 0 {
		c.until = deadline(ctx, c.until, maxWait)
	}
	return c
}

// ownWaiter returns the call's waiter, ready to wait. If it has none yet, it takes one out of the pool of those
// that wake a goroutine.
func (c *keyCall) ownWaiter() *queue.Waiter {
	l := c.key.limiter
	if c.waiter == nil {
		c.waiter = l.core.parked.Get().(*queue.Waiter)
	}
	c.waiter.Owner = l.all.id
	return c.waiter
}

// proceed starts the call again if it has to (again), until it waits or is finished. It returns whether it is
// finished.
func (c *keyCall) proceed(again bool) (done bool) {
	l := c.key.limiter
	for again {
		if l.all.closed.Load() {
			return c.finish(l.answer(queue.Closed, c.n))
		}
		t := l.core.tryKey(c.key, c.n, wayOf(c.maxWait), &c.permit)
		again = c.tried(&t)
	}
	return c.place == finished
}

// tried takes the outcome of tryKey in the ways of wayOf, by which the key's permits are reserved if only the
// provider's are lacking. It returns whether the call has to start again.
func (c *keyCall) tried(t *keyTry) (again bool) {
	l := c.key.limiter
	k := l.core
	switch t.found {
	case granted:
		c.finish(nil)
		return false
	case unusable, tooMany:
		c.finish(k.unusable(c.key, c.n, t))
		return false
	case keyLacks:
		switch {
		case t.segment.Shadow:
			k.shadowedKey(t.state, c.n)
			c.permit = l.passed(t.segment, c.n)
			c.finish(nil)
			return false
		case c.maxWait <= 0:
			err := l.refuseKey(t.state, c.n, true)
			if err != nil {
				c.finish(err)
			}
			return err == nil // for there are some by now, as behind a window's edge: no words would be true
		}
		c.state = t.state
		if t.segment.LeftFor(l.class) < c.n && k.gate.Late(k.clock.Now(), c.n, c.until, l.class) { // as in a pause
			c.refused(queue.Limited)
			return false
		}
		switch v := k.keys.lines.enter(k, t.state, c.ownWaiter(), c.n, c.until, l.class); v {
		case queue.Granted: // some have come meanwhile, and are reserved
		case queue.Queued:
			c.waitsIn(inLine)
			if l.all.closed.Load() { // Close may have looked before the waiter came
				k.keys.lines.evict(k, l.all.id)
			}
			return false
		case queue.Closed:
			return true
		default:
			c.refused(v)
			return false
		}
	default: // providerLacks
		c.state = t.state
	}
	c.held = true
	return c.askGate()
}

// waitsIn notes where the call waits now.
func (c *keyCall) waitsIn(place keyPlace) {
	c.place = place
	c.began = min(c.began, c.key.limiter.core.clock.Mono())
}

// resume goes on with a call that was told the outcome of its wait, until it waits again or is finished. It
// returns whether it is finished.
func (c *keyCall) resume() (done bool) {
	o, place := c.waiter.Outcome, c.place
	c.waiter.Outcome, c.place = nil, outside
	again := true
	switch {
	case place == inQueue:
		again = c.decided(o.Grant, o.Verdict)
		c.sure(o)
	case o.Verdict == queue.Granted:
		c.held = true
		again = c.askGate()
	case o.Verdict == queue.Closed: // it starts again
	default:
		return c.refused(o.Verdict)
	}
	return c.proceed(again)
}

// refused ends a call that the key's line refuses, with the error that says why.
func (c *keyCall) refused(v queue.Verdict) (done bool) {
	if v == queue.Full || v == queue.Displaced {
		return c.finish(c.key.limiter.answer(v, c.n))
	}
	return c.finish(c.key.limiter.refuseKey(c.state, c.n, false))
}

// askGate asks the gate for the provider's permits, for a call that has the key's reserved. The call is then
// finished, or waits in the gate's queue, or has to start again: askGate returns whether it has to.
func (c *keyCall) askGate() (again bool) {
	l := c.key.limiter
	if c.maxWait <= 0 {
		g, err := l.acquire(context.Background(), c.n, 0)
		return c.answered(g, err)
	}
	w := c.ownWaiter()
	w.MayGiveBack(l.core.lapses(c.state)) // for those behind it
	g, v := l.ask(w, c.n, c.until)
	if v == queue.Queued {
		c.waitsIn(inQueue)
		return false
	}
	return c.decided(g, v)
}

// decided takes the gate's verdict, and its permits if that is Granted. It returns whether the call has to start
// again.
func (c *keyCall) decided(g queue.Grant, v queue.Verdict) (again bool) {
	err := c.key.limiter.answer(v, c.n)
	return c.answered(g, err)
}

// answered takes the provider's permits that the gate has issued, or the error. Permits are booked with the
// key too, and the call is finished. But if the key does not allow n any more, or the window of the
// provider's permits is over, those are given back, and the call has to start again.
func (c *keyCall) answered(g queue.Grant, err error) (again bool) {
	l := c.key.limiter
	switch {
	case err != nil:
		c.release()
		c.finish(err)
		return false
	case g.Epoch == 0: // shadow mode lets it pass without permits, also of the key
		c.release()
		c.permit = l.permit(g, c.n, 0)
		c.finish(nil)
		return false
	}
	c.held = false // confirm ends the reservation in either case
	p, ok := l.confirm(c.state, c.waiter, g, c.n)
	if !ok {
		l.permit(g, c.n, c.n).Release()
		return true
	}
	c.permit = p
	c.finish(nil)
	return false
}

// release ends the reservation, if there is one.
func (c *keyCall) release() {
	if c.held {
		c.held = false
		c.key.limiter.core.unreserve(c.state, c.waiter, c.n)
	}
}

// finish ends the call, with c.permit if err is nil. It returns true.
func (c *keyCall) finish(err error) (done bool) {
	c.place, c.err = finished, err
	return true
}

// leave takes a call that gives up out of the line or the queue. It returns false if the call was told an
// outcome before. Whoever hears that outcome then calls discard in place of resume.
func (c *keyCall) leave() bool {
	k, left := c.key.limiter.core, false
	switch c.place {
	case inLine:
		left = k.keys.lines.cancel(k, c.state, c.waiter)
	case inQueue:
		left = k.gate.Cancel(k.clock.Now(), c.waiter)
	}
	if left {
		c.release()
		c.place = finished
	}
	return left
}

// discard ends a call that gave up when it had been told an outcome already: it gives back what that brings,
// and ends the reservation.
func (c *keyCall) discard() {
	l, o := c.key.limiter, c.waiter.Outcome
	c.waiter.Outcome = nil
	switch {
	case o.Verdict != queue.Granted: // it brings nothing
	case c.place == inLine:
		c.held = true // the line has reserved them
	default:
		l.counted(c.n) // as issued: Release counts them off again
		l.permit(o.Grant, c.n, c.n).Release()
		c.sure(o)
	}
	c.release()
	c.place = finished
}

// sure tells the gate that a call which was told its outcome there does not give back its permits any more.
func (c *keyCall) sure(o *queue.Outcome) {
	if c.waiter.Unsure && o.Verdict == queue.Granted {
		c.key.limiter.core.gate.Sure()
	}
}

// confirm charges a key for n permits that were reserved, once the gate has issued as many of the provider by grant g.
// w is the call's waiter, nil if it has never had one. The reservation ends. ok is false if the key's bound has fallen
// below them meanwhile, or the grant's window or the proof is over: then they must not be used.
func (o *origin) confirm(y *keyState, w *queue.Waiter, g queue.Grant, n int64) (p Permit, ok bool) {
	k := o.core
	s, now := y.lock(k)
	if s.Keys == nil || s.Stale || s.Grant.Epoch != g.Small().Epoch && g.End <= now+s.Keys.Offset {
		y.use.Unreserve(w, n)
	} else if large := y.use.ServedLarge(w); y.use.Confirm(w, n) {
		ok = true
		y.use.Called(n, o.class, large)
		y.note(&k.keys, n, 0)
		y.afterIssue(k, n, now)
		p = o.permit(g, n, n)
		p.bookedIn(y)
		p.keyLarge = large
	}
	if ok && (!y.judge || y.use.Reserves()) {
		y.mu.Unlock()
	} else {
		k.keys.lines.brought(k, y)
	}
	return p, ok
}

// lapses returns from which monotonic instant on permits of a key that are reserved may be gone: see Account.Lapses. When
// those in hand end, the key is looked at: see renew.
func (k *core) lapses(y *keyState) (from int64) {
	y.hold(&k.keys)
	defer y.mu.Unlock()
	y.scheduleRenewal(k)
	return y.use.Lapses(y.totals(k))
}

// scheduleRenewal has the key looked at when its permits in hand end. y.mu is held.
func (y *keyState) scheduleRenewal(k *core) {
	if at := y.use.HandEnds(); at < clock.Forever {
		k.keys.asks.schedule(k, y, at)
	}
}

// renew has etcd asked anew for what is reserved of a key, if the permits in hand have ended. So a call that waits for the
// provider's finds the key's when its turn comes, provided that etcd has answered by then.
func (k *core) renew(y *keyState, s *window.Segment, now int64) {
	y.hold(&k.keys)
	defer y.mu.Unlock()
	if s.Keys == nil || y.gone || !y.use.Reserves() {
		return
	}
	y.adopt(k, s, now)
	if y.use.Wants(0, now) {
		k.keys.funds.want(k, y, true)
	}
	y.scheduleRenewal(k)
}

// unreserve ends the reservation of n permits of a key for the call of a waiter, nil if it has none, and serves those
// that wait for the key.
func (k *core) unreserve(y *keyState, w *queue.Waiter, n int64) {
	y.hold(&k.keys)
	y.use.Unreserve(w, n)
	k.keys.lines.brought(k, y)
}

// waited returns how long ago the call first had to wait; didNotWait if it never had.
func (c *keyCall) waited() time.Duration {
	if c.began == math.MaxInt64 {
		return didNotWait
	}
	return time.Duration(c.key.limiter.core.clock.Mono() - c.began)
}

// didNotWait stands in place of the duration of a wait for a call that was decided at once.
const didNotWait = time.Duration(-1)

// wait is acquire after an attempt that did not get the permits. It is apart, so that a call that gets them
// at once pays for no keyCall.
func (y Key) wait(ctx context.Context, n int64, maxWait time.Duration, t keyTry, p *Permit) error {
	l := y.limiter
	c := newKeyCall(ctx, y, n, maxWait)
	for done := c.proceed(c.tried(&t)); !done; done = c.resume() {
		if await(ctx, c.waiter) {
			continue
		}
		if !c.leave() { // the outcome is on its way through the waiter's channel
			<-c.waiter.Payload.(chan struct{})
			c.discard()
		}
		c.permit, c.err = Permit{}, ctx.Err()
		break
	}
	if c.waiter != nil {
		l.core.parked.Put(c.waiter)
	}
	l.all.waited(ctx, c.waited(), c.err)
	if p != nil {
		*p = c.permit
	}
	return c.err
}

// keyFunc is a keyCall of TakeFunc, whose outcome goes to a function. Its steps are made on three goroutines:
// TakeFunc's, the dispatcher's, and that of whoever calls Waiter.Stop.
type keyFunc struct {
	mu   sync.Mutex // guards what follows; taken before the lock of a key's state and the gate's
	call keyCall
	f    func(Permit, error)
	over bool // it is settled whether f runs: it has run or will, or was stopped
}

// TakeFunc asks for n permits of the key as Take does, without a waiting goroutine: see
// Limiter.TakeFunc, which says when f is called.
func (y Key) TakeFunc(n int64, maxWait time.Duration, f func(Permit, error)) Waiter {
	l := y.limiter
	if f == nil || n <= 0 || l.bad {
		return l.TakeFunc(n, maxWait, f) // which tells what is wrong
	}
	t := &keyFunc{f: f}
	w := &queue.Waiter{Payload: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = newKeyCall(context.Background(), y, n, maxWait)
	t.call.waiter = w
	if t.call.proceed(true) {
		t.over = true
		l.core.dispatch.add(l.core, w, &lineOutcomes[queue.Granted]) // any outcome: step goes by the call's
		return Waiter{}
	}
	return Waiter{l.core, w}
}

// run is what the dispatcher does when the call was told the outcome of a wait, or was finished at once: it
// goes on with the call, and calls f if that is finished.
func (t *keyFunc) run() {
	if p, err, due := t.step(); due {
		c := &t.call
		c.key.limiter.all.waited(context.Background(), c.waited(), err)
		t.f(p, err)
	}
}

// step goes on with the call under the lock. due says that f is to be called, with p and err.
func (t *keyFunc) step() (p Permit, err error, due bool) { //nolint:revive // the outcome of Take, and whether it is due
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.call
	switch {
	case c.place == finished: // within TakeFunc
	case t.over: // Stop came after the outcome
		c.discard()
		return p, nil, false
	case !c.resume(): // it waits again
		return p, nil, false
	}
	t.over = true
	return c.permit, c.err, true
}

// stop is Waiter.Stop: it gives the call's place back. It returns false if f has run or is about to, or if it
// was called before.
func (t *keyFunc) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.over = true
	t.call.leave() // if that is too late, the dispatcher hears the outcome, and step discards it
	return true
}
