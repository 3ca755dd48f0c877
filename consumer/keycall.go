package consumer

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/window"
)

// keyCall is a call for permits of a key, on its way. It may wait twice: in the key's line, until the
// key's permits are reserved for it, and then in the gate's queue for the provider's. So a key that is
// spent holds up no other.
//
//	outside  -> inLine    tried: the key has too few
//	outside  -> inQueue   tried: the key's permits are reserved, and the provider has too few
//	inLine   -> outside   told: the key's permits are reserved, or it is to start again
//	inQueue  -> outside   told: the provider's permits came too late, and it starts again
//	any      -> finished  tried or told: with the permit or the error
//	waiting  -> finished  leave or discard: the caller has given up
//
// Each step returns at once. The caller's goroutine makes the steps. For TakeFunc it makes tried, and the
// dispatcher makes the rest.
type keyCall struct {
	key     Key
	n       int64
	maxWait time.Duration
	until   int64          // monotonic
	waiter  *window.Waiter // nil until it waits, but for TakeFunc

	place keyPlace
	state *keyState // in whose line it waits, or of which n permits are reserved
	held  bool      // these are reserved
	began int64     // monotonic: when it first had to wait; math.MaxInt64: it had not

	permit Permit
	err    error
}

type keyPlace uint8

const (
	outside keyPlace = iota
	inLine
	inQueue
	finished
)

func newKeyCall(ctx context.Context, y Key, n int64, maxWait time.Duration) keyCall {
	c := keyCall{key: y, n: n, maxWait: maxWait, until: y.limiter.core.clock.Mono(), began: math.MaxInt64}
	if maxWait > 0 {
		c.until = deadline(ctx, c.until, maxWait)
	}
	return c
}

// ownWaiter returns the call's waiter. If it has none, it takes one for a goroutine.
func (c *keyCall) ownWaiter() *window.Waiter {
	l := c.key.limiter
	if c.waiter == nil {
		c.waiter = l.core.parked.Get().(*window.Waiter)
	}
	c.waiter.Owner = l.all.id
	return c.waiter
}

// proceed tries to take permits, if the call has to start again, until it is finished or waits. It returns
// whether it is finished.
func (c *keyCall) proceed(again bool) (done bool) {
	l := c.key.limiter
	for again {
		if l.all.closed.Load() {
			return c.finish(l.answer(window.Closed, c.n))
		}
		t := l.core.tryKey(c.key, c.n, reserve, &c.permit)
		again = c.tried(&t)
	}
	return c.place == finished
}

// tried takes the outcome of an attempt to take permits (reserve). It returns whether the call has to start
// again.
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
			c.finish(l.refuseKey(t.state, c.n))
			return false
		}
		c.state = t.state
		switch v := k.keys.lines.enter(k, t.state, c.ownWaiter(), c.n, c.until, l.class); v {
		case window.Granted:
		case window.Queued:
			c.waitsIn(inLine)
			if l.all.closed.Load() { // Close may have looked before the waiter came
				k.keys.lines.evict(k, l.all.id)
			}
			return false
		case window.Closed:
			return true
		default:
			c.refused(v)
			return false
		}
	default: // the provider's lack
		c.state = t.state
	}
	c.held = true
	return c.askGate()
}

// waitsIn notes where the call waits.
func (c *keyCall) waitsIn(place keyPlace) {
	c.place = place
	c.began = min(c.began, c.key.limiter.core.clock.Mono())
}

// told takes the outcome of the wait.
func (c *keyCall) told() (done bool) {
	o, place := c.waiter.Outcome, c.place
	c.waiter.Outcome, c.place = nil, outside
	again := true
	switch {
	case place == inQueue:
		again = c.decided(o.Grant, o.Verdict)
	case o.Verdict == window.Granted:
		c.held = true
		again = c.askGate()
	case o.Verdict == window.Closed:
	default:
		return c.refused(o.Verdict)
	}
	return c.proceed(again)
}

// refused ends a call that the key's line refuses.
func (c *keyCall) refused(v window.Verdict) (done bool) {
	if v == window.Full || v == window.Displaced {
		return c.finish(c.key.limiter.answer(v, c.n))
	}
	return c.finish(c.key.limiter.refuseKey(c.state, c.n))
}

// askGate takes the provider's permits for a call whose key's are reserved, or has it wait for them. It
// returns whether the call has to start again.
func (c *keyCall) askGate() (again bool) {
	l := c.key.limiter
	if c.maxWait <= 0 {
		g, err := l.acquire(context.Background(), c.n, 0)
		return c.answered(g, err)
	}
	w := c.ownWaiter()
	w.Unsure = l.core.lapses(c.state)
	g, v := l.ask(w, c.n, c.until)
	if v == window.Queued {
		c.waitsIn(inQueue)
		return false
	}
	return c.decided(g, v)
}

// decided takes the gate's verdict. It returns whether the call has to start again.
func (c *keyCall) decided(g window.Grant, v window.Verdict) (again bool) {
	err := c.key.limiter.answer(v, c.n)
	return c.answered(g, err)
}

// answered books what the gate has issued with the key, or ends the call. If the key does not allow n
// permits any more, or the provider's window is over, the provider's permits are given back, and again
// is true.
func (c *keyCall) answered(g window.Grant, err error) (again bool) {
	l := c.key.limiter
	switch {
	case err != nil:
		c.release()
		c.finish(err)
		return false
	case g.Epoch == 0: // shadow mode lets it pass
		c.release()
		c.permit = l.permit(g, c.n, 0)
		c.finish(nil)
		return false
	}
	c.held = false
	p, ok := l.confirm(c.state, g, c.n)
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
		c.key.limiter.core.unreserve(c.state, c.n)
	}
}

func (c *keyCall) finish(err error) (done bool) {
	c.place, c.err = finished, err
	return true
}

// leave takes a call that gives up out of where it waits. It returns false if the call was told an
// outcome before: then the caller receives that and calls discard.
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

// discard is for a call that gave up after it was told its outcome: it gives back what that brings, and
// ends the reservation.
func (c *keyCall) discard() {
	l, o := c.key.limiter, c.waiter.Outcome
	c.waiter.Outcome = nil
	switch {
	case o.Verdict != window.Granted:
	case c.place == inLine:
		c.held = true
	default:
		l.counted(c.n)
		l.permit(o.Grant, c.n, c.n).Release()
	}
	c.release()
	c.place = finished
}

// waited returns for how long the call has waited; didNotWait if it has not.
func (c *keyCall) waited() time.Duration {
	if c.began == math.MaxInt64 {
		return didNotWait
	}
	return time.Duration(c.key.limiter.core.clock.Mono() - c.began)
}

// didNotWait is the duration of a wait that there was not.
const didNotWait = time.Duration(-1)

// acquire takes n permits of the key, and waits for them up to maxWait. It fills in p, if that is not nil.
func (y Key) acquire(ctx context.Context, n int64, maxWait time.Duration, p *Permit) error {
	l := y.limiter
	if n <= 0 || l.bad || ctx == nil {
		return l.invalid(ctx, n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.all.closed.Load() {
		return l.answer(window.Closed, n)
	}
	if t := l.core.tryKey(y, n, reserve, p); t.found != granted {
		return y.wait(ctx, n, maxWait, t, p)
	}
	return nil
}

// wait is acquire after an attempt that did not get the permits. It is apart, so that a call that gets them
// at once pays for no keyCall.
func (y Key) wait(ctx context.Context, n int64, maxWait time.Duration, t keyTry, p *Permit) error {
	l := y.limiter
	c := newKeyCall(ctx, y, n, maxWait)
	for done := c.proceed(c.tried(&t)); !done; done = c.told() {
		if await(ctx, c.waiter) {
			continue
		}
		if !c.leave() {
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

// keyFunc is a keyCall whose function gets the outcome: the steps are made by TakeFunc, and then by the
// dispatcher.
type keyFunc struct {
	mu   sync.Mutex // taken first
	call keyCall
	f    func(Permit, error)
	over bool // f was called, is about to be, or will not be
}

// TakeFunc asks for n permits of the key as Take does, without a waiting goroutine: see
// Limiter.TakeFunc, which says when f is called.
func (y Key) TakeFunc(n int64, maxWait time.Duration, f func(Permit, error)) Waiter {
	l := y.limiter
	if f == nil || n <= 0 || l.bad {
		return l.TakeFunc(n, maxWait, f) // which tells what is wrong
	}
	t := &keyFunc{f: f}
	w := &window.Waiter{Payload: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.call = newKeyCall(context.Background(), y, n, maxWait)
	t.call.waiter = w
	if t.call.proceed(true) {
		t.over = true
		l.core.dispatch.add(l.core, w, &lineOutcomes[window.Granted]) // any outcome: the call is finished
		return Waiter{}
	}
	return Waiter{l.core, w}
}

// run is the dispatcher's: the call was told an outcome, or is finished.
func (t *keyFunc) run() {
	if p, err, due := t.step(); due {
		c := &t.call
		c.key.limiter.all.waited(context.Background(), c.waited(), err)
		t.f(p, err)
	}
}

// step returns the outcome if it is due.
func (t *keyFunc) step() (p Permit, err error, due bool) { //nolint:revive // the outcome of Take, and whether it is due
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &t.call
	switch {
	case c.place == finished:
	case t.over: // stopped
		c.discard()
		return p, nil, false
	case !c.told():
		return p, nil, false
	}
	t.over = true
	return c.permit, c.err, true
}

// stop gives the place back; false if the function was called or is about to be.
func (t *keyFunc) stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.over = true
	t.call.leave() // or the dispatcher discards it
	return true
}
