package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// Forever, as maxWait, means as long as the context allows.
const Forever time.Duration = -1

// Options of a limiter. The zero value is ready to use.
type Options struct {
	// MaxWaiters bounds how many callers may wait at once; who comes on top is
	// refused with ErrQueueFull. 0 means no bound: a waiter costs 64 bytes, a
	// parked goroutine its stack on top.
	MaxWaiters int
	// Logger takes the changes of state; default slog.Default().
	Logger *slog.Logger
	// Waited, if set, is told of every caller that had to wait: how long, and with
	// what result. It is called on the caller's goroutine, or before the function
	// of AcquireFunc, and must not block. Who is served or refused at once is not
	// told of, so a permit without waiting costs the same with it and without.
	Waited func(d time.Duration, err error)
}

// Limiter issues this instance's share of a provider's limit. Its methods are
// safe for concurrent use. Make one with Open.
type Limiter struct {
	core   *core
	sub    feed.Subscription
	id     uint32
	closed atomic.Bool
}

// Open returns a limiter for the provider. It returns at once: until the
// instance has a share the limiter refuses, or lets wait, as in any window
// whose share is spent. Ready waits for that.
//
// Opening a provider twice on one source gives two limiters with one counter
// and one queue; the options of the first are in force. The limiter lives until
// Close, not until ctx ends.
func Open(ctx context.Context, source Source, provider string, o Options) (*Limiter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := quota.ValidateProvider(provider); err != nil {
		return nil, fmt.Errorf("consumer: open: %w", err)
	}
	if o.MaxWaiters < 0 {
		return nil, fmt.Errorf("consumer: open %s: %w: MaxWaiters is %d, less than 0 (no bound)", provider, ErrInvalid, o.MaxWaiters)
	}
	sub, err := source.Subscribe(provider, func() feed.Sink { return newCore(provider, source.Clock(), o) })
	if err != nil {
		return nil, fmt.Errorf("consumer: open %s: %w", provider, err)
	}
	k, ok := sub.Sink().(*core)
	if !ok {
		return nil, fmt.Errorf("consumer: open %s: the source serves it to something that is no limiter (%T)", provider, sub.Sink())
	}
	return &Limiter{core: k, sub: sub, id: k.owners.Add(1)}, nil
}

// Acquire issues one permit, waiting for at most maxWait: 0 does not wait,
// Forever waits as long as ctx allows. It returns nil, or the reason: an error
// of ctx, or one of this package's errors. A caller that cannot be served in
// time, as far as is known, is refused at once.
//
// Waiting parks the goroutine, and nothing else. Those who wait are served in
// the order in which they came.
func (l *Limiter) Acquire(ctx context.Context, maxWait time.Duration) error {
	if maxWait < Forever {
		return invalid(1, maxWait)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	k := l.core
	if s := k.gate.Segment(); !s.Strict && !l.closed.Load() {
		now := k.clock.Mono() // as take does, without a call
		if s.Take(now, 1) {
			return nil
		}
		if maxWait == 0 && s.Open(now) {
			if r := k.refusedIn(s); r != nil && !k.shadow.Load() {
				r.count.Add(1)
				return r.err
			}
		}
	}
	_, err := l.acquire(ctx, 1, maxWait)
	return err
}

// AcquireN is Acquire for n permits of one window, all or none; n is at least 1.
func (l *Limiter) AcquireN(ctx context.Context, n int64, maxWait time.Duration) error {
	_, err := l.acquire(ctx, n, maxWait)
	return err
}

// Take is AcquireN that tells the permits' window.
func (l *Limiter) Take(ctx context.Context, n int64, maxWait time.Duration) (Permit, error) {
	g, err := l.acquire(ctx, n, maxWait)
	if err != nil {
		return Permit{}, err
	}
	return l.core.permit(g, n), nil
}

// TryAcquire issues one permit if there is one now. It never waits.
func (l *Limiter) TryAcquire() bool {
	if l.closed.Load() {
		return false
	}
	k := l.core
	if s := k.gate.Segment(); !s.Strict { // as take does, without a call
		now := k.clock.Mono()
		if s.Take(now, 1) {
			return true
		}
		if s.Open(now) {
			if r := k.refusedIn(s); r != nil && !k.shadow.Load() {
				r.count.Add(1)
				return false
			}
		}
	}
	if _, ok := k.take(1); ok {
		return true
	}
	return k.pass(1)
}

// TryTakeUpTo issues as many permits as there are now, at most n, and returns
// their number; 0 also for n <= 0.
func (l *Limiter) TryTakeUpTo(n int64) int64 {
	if n <= 0 || l.closed.Load() {
		return 0
	}
	k := l.core
	now := k.clock.Now()
	s := k.gate.Segment()
	var got int64
	if s.Open(now.Mono) && (!s.Strict || s.WallValid(now)) {
		got = s.TakeUpTo(now.Mono, n)
	} else {
		got = k.gate.TakeUpTo(now, n)
		k.stepAside()
	}
	if got < n && k.pass(n-got) {
		return n
	}
	return got
}

func (l *Limiter) acquire(ctx context.Context, n int64, maxWait time.Duration) (window.Grant, error) {
	if n <= 0 || maxWait < Forever {
		return window.Grant{}, invalid(n, maxWait)
	}
	if err := ctx.Err(); err != nil {
		return window.Grant{}, err
	}
	k := l.core
	if l.closed.Load() {
		return window.Grant{}, k.errs.closed
	}
	if g, ok := k.take(n); ok {
		return g, nil
	}
	if maxWait == 0 {
		if k.shadow.Load() && k.pass(n) {
			return k.gate.Segment().Grant, nil
		}
		return window.Grant{}, k.reject(window.Limited, n)
	}
	return l.wait(ctx, n, maxWait)
}

// wait parks the goroutine until a permit comes, or can no longer come.
func (l *Limiter) wait(ctx context.Context, n int64, maxWait time.Duration) (window.Grant, error) {
	k := l.core
	if k.shadow.Load() && k.pass(n) {
		return k.gate.Segment().Grant, nil
	}
	w := k.parked.Get().(*window.Waiter)
	o, began := l.enter(ctx, w, n, maxWait)
	if began < 0 {
		k.parked.Put(w)
		return l.told(o, n)
	}
	return l.leave(ctx, w, n, began, !await(ctx, w))
}

// enter asks the gate, and returns when waiting began; or the outcome, if it is
// there already, and -1. It is apart from wait, as leave is, because what these
// need of the stack would make it grow under every goroutine that parks.
func (l *Limiter) enter(ctx context.Context, w *window.Waiter, n int64, maxWait time.Duration) (o window.Outcome, began int64) {
	k := l.core
	now := k.clock.Now()
	w.Owner = l.id
	g, v, wake := k.gate.Wait(now, w, n, deadline(ctx, now.Mono, maxWait))
	if v != window.Queued {
		return window.Outcome{Grant: g, Verdict: v}, -1
	}
	if l.closed.Load() { // Close may have looked before the waiter came
		k.gate.Evict(k.clock.Now(), l.id)
	}
	k.alarm.set(k.clock, wake)
	return o, now.Mono
}

// await parks until the outcome is there (true), or the context ends.
func await(ctx context.Context, w *window.Waiter) bool {
	select {
	case <-w.Payload.(chan struct{}):
		return true
	case <-ctx.Done():
		return false
	}
}

// leave returns what became of a waiter that began to wait at an instant, and
// gives its place to the next who needs one.
func (l *Limiter) leave(ctx context.Context, w *window.Waiter, n, began int64, cancelled bool) (g window.Grant, err error) {
	k := l.core
	if cancelled && !k.gate.Cancel(k.clock.Now(), w) {
		// Decided at the same moment: what was granted goes to the next in line.
		<-w.Payload.(chan struct{})
		if w.Outcome.Verdict == window.Granted {
			k.gate.Return(k.clock.Now(), w.Outcome.Grant, n)
		}
	}
	o := w.Outcome
	w.Outcome = nil
	k.parked.Put(w)
	if cancelled {
		k.refused.inVain.Add(n)
		err = ctx.Err()
	} else {
		g, err = l.told(*o, n)
	}
	if k.waited != nil {
		k.waited(time.Duration(k.clock.Mono()-began), err)
	}
	return g, err
}

// told returns what a caller is told for an outcome, and counts it.
func (l *Limiter) told(o window.Outcome, n int64) (window.Grant, error) {
	if o.Verdict == window.Granted {
		return o.Grant, nil
	}
	l.core.refused.inVain.Add(n)
	return window.Grant{}, l.core.reject(o.Verdict, n)
}

// deadline returns the monotonic instant at which waiting ends.
func deadline(ctx context.Context, now int64, maxWait time.Duration) int64 {
	end := window.Forever
	if maxWait >= 0 && now <= math.MaxInt64-int64(maxWait) {
		end = now + int64(maxWait)
	}
	if d, ok := ctx.Deadline(); ok {
		end = min(end, now+max(0, int64(time.Until(d))))
	}
	return end
}

// Waiter is a place in the queue, made by AcquireFunc.
type Waiter struct {
	core   *core
	waiter *window.Waiter
}

// Stop gives the place back. It returns true if the function has not run and
// will not; false if it has run, or is about to.
func (w Waiter) Stop() bool {
	return w.waiter != nil && w.core.gate.Cancel(w.core.clock.Now(), w.waiter)
}

// AcquireFunc asks for n permits as Take does, without a goroutine that waits:
// f is called with the permit, or with the reason why there is none. It is
// called exactly once, unless Stop returned true; in the queue's order; never
// within the call of AcquireFunc and never under a lock, but on a goroutine of
// the limiter that serves all waiters, so it must not block. A waiter costs 64
// bytes and what f holds.
func (l *Limiter) AcquireFunc(n int64, maxWait time.Duration, f func(Permit, error)) Waiter {
	k := l.core
	w := &window.Waiter{Owner: l.id, Payload: f}
	if n <= 0 || maxWait < Forever {
		err := invalid(n, maxWait)
		go f(Permit{}, err)
		return Waiter{}
	}
	if l.closed.Load() {
		go f(Permit{}, k.errs.closed)
		return Waiter{}
	}
	now := k.clock.Now()
	if k.waited != nil {
		w.Payload = k.timed(now.Mono, f)
	}
	end := deadline(context.Background(), now.Mono, maxWait)
	g, v, wake := k.gate.Wait(now, w, n, end)
	switch {
	case v == window.Queued:
		if l.closed.Load() {
			k.gate.Evict(k.clock.Now(), l.id)
		}
		k.alarm.set(k.clock, wake)
		return Waiter{k, w}
	case v == window.Limited && k.shadow.Load() && k.pass(n):
		g, v = k.gate.Segment().Grant, window.Granted
	}
	w.Want(n)
	w.Payload = f // it did not wait
	k.dispatch.add(k, w, g, v)
	return Waiter{}
}

// Return gives an unused permit back, so that somebody else may use it. It
// reports whether it did: false once the permit's window is over, and for a
// permit of another limiter or one returned before. (With several limits whose
// windows are no multiples of each other, the window of any of them counts.)
func (l *Limiter) Return(p Permit) bool {
	k := l.core
	if p.core != k || p.N <= 0 || !k.returned.first(&p) {
		return false
	}
	ok := k.gate.Return(k.clock.Now(), p.grant, p.N)
	k.alarm.set(k.clock, k.gate.Wake())
	return ok
}

// Close gives the limiter up: those who wait on it get ErrClosed, and so does
// everybody later. The last limiter of a provider to be closed takes the
// instance out of the fleet; the others grow into its share after the policy's
// settle time. A second Close returns nil.
func (l *Limiter) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	l.core.gate.Evict(l.core.clock.Now(), l.id)
	return l.sub.Close()
}

func invalid(n int64, maxWait time.Duration) error {
	if n <= 0 {
		return fmt.Errorf("consumer: %w: %d permits asked for, at least 1 are needed", ErrInvalid, n)
	}
	return fmt.Errorf("consumer: %w: maxWait is %v: use 0 to not wait, Forever (-1) to wait as long as the context allows", ErrInvalid, maxWait)
}
