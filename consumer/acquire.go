package consumer

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// acquire is the one way to permits: for Acquire, Take and the Try functions
// where the fast path does not do, and, by ask, for TakeFunc.
func (l *Limiter) acquire(ctx context.Context, n int64, maxWait time.Duration) (queue.Grant, error) {
	if n <= 0 || l.bad || ctx == nil {
		return queue.Grant{}, l.invalid(ctx, n)
	}
	if err := ctx.Err(); err != nil {
		return queue.Grant{}, err
	}
	k := l.core
	// A limiter that is closed would lose the permits. A large call that may wait goes by the queue.
	if !l.all.closed.Load() && (n == 1 || maxWait <= 0 || !k.gate.Segment().Leaves(n)) {
		switch g, r, ok := k.take(n, l.class); {
		case ok:
			l.counted(n)
			return g, nil
		case r != nil && maxWait <= 0:
			l.refused(r, n)
			return queue.Grant{}, r.err
		}
	}
	if maxWait <= 0 {
		g, v := l.ask(nil, n, 0)
		return l.unlessLate(g, v, n)
	}
	return l.wait(ctx, n, maxWait)
}

// take is the hot path: one clock reading, compared with the segment's end, and
// one compare-and-swap. Under the rule stop it reads the wall clock too, which
// goes on while a suspended machine's monotonic clock stands still. Where it fails it
// returns the refusal, if that is known.
func (k *core) take(n int64, c queue.Class) (g queue.Grant, r *refusal, ok bool) {
	s := k.gate.Segment()
	if s.Strict {
		now := k.clock.Now()
		return s.Grant, nil, s.WallValid(now) && s.Take(now.Mono, n, c)
	}
	now := k.clock.Mono()
	if ok = s.Take(now, n, c); !ok && s.Open(now) {
		r = k.refusedIn(s, n, c)
	}
	return s.Grant, r, ok
}

// ask has the gate decide on a request that the fast path could not serve. w is
// queued if it has to wait; it is nil for a caller that does not.
func (l *Limiter) ask(w *queue.Waiter, n, deadline int64) (queue.Grant, queue.Verdict) {
	k := l.core
	if l.all.closed.Load() {
		return queue.Grant{}, queue.Closed
	}
	g, v := k.gate.Enter(k.clock.Now(), w, n, deadline, l.class)
	switch {
	case v == queue.Queued && l.all.closed.Load(): // Close may have looked before the waiter came
		k.gate.Evict(k.clock.Now(), l.all.id)
	case v != queue.Queued:
		k.stepAside()
	}
	return g, v
}

// stepAside lets those run that were told an outcome by this goroutine's doing.
// With all processors busy they would otherwise run at the next preemption only, 10
// ms later.
func (k *core) stepAside() {
	if k.served.Load() && k.served.CompareAndSwap(true, false) {
		runtime.Gosched()
	}
}

// unlessLate is answer for a call that does not wait. A refusal is worded after it was decided. If permits have
// come meanwhile, as at a window's edge, the call has them: no words would be true.
func (l *Limiter) unlessLate(g queue.Grant, v queue.Verdict, n int64) (queue.Grant, error) {
	if v.Refused() {
		r, late := l.core.refuse(v, n, l.class)
		if !late {
			l.refused(r, n)
			return queue.Grant{}, r.err
		}
		g, v = l.ask(nil, n, 0)
	}
	return g, l.answer(v, n)
}

// answer returns the error for a verdict on n permits, and counts it.
func (o *origin) answer(v queue.Verdict, n int64) error {
	k, c := o.core, o.class
	switch {
	case n <= 0:
		return invalid(n)
	case v == queue.Granted:
		o.counted(n)
		return nil
	case (v == queue.Passed || v == queue.TooLarge) && k.beyondLimit(n):
		k.refused.impossible.Add(1)
		if v == queue.Passed {
			return nil
		}
		_, _, err := k.explain(v, n, c)
		return err
	case v == queue.Passed:
		k.shadowed.Add(n)
		return nil
	}
	r, _ := k.refuse(v, n, c)
	o.refused(r, n)
	return r.err
}

// beyondLimit reports whether n permits are more than a limit of the policy: no share ever
// serves such a call, so it is a mistake and no refusal.
func (k *core) beyondLimit(n int64) bool {
	return slices.ContainsFunc(k.gate.Usage(k.clock.Now()).Limits, func(u window.LimitUsage) bool { return n > u.Limit.Limit })
}

// wait parks the goroutine until a permit comes, or can no longer come.
func (l *Limiter) wait(ctx context.Context, n int64, maxWait time.Duration) (queue.Grant, error) {
	var g queue.Grant
	w, began, v := l.enter(ctx, n, maxWait, &g)
	if v == queue.Queued {
		return l.decided(ctx, w, n, began, !await(ctx, w))
	}
	return g, l.answer(v, n)
}

// enter asks the gate for a place, and returns the waiter and when waiting began,
// or the outcome. It is apart from wait, as decided is, because their frames would
// grow the stack of every goroutine that parks.
func (l *Limiter) enter(ctx context.Context, n int64, maxWait time.Duration, g *queue.Grant) (w *queue.Waiter, began int64, v queue.Verdict) {
	k := l.core
	w = k.parked.Get().(*queue.Waiter)
	w.Owner = l.all.id
	w.MayGiveBack(clock.Forever)
	began = k.clock.Mono()
	*g, v = l.ask(w, n, deadline(ctx, began, maxWait))
	if v != queue.Queued {
		k.parked.Put(w)
	}
	return w, began, v
}

// await parks until the outcome is there (true), or the context ends.
func await(ctx context.Context, w *queue.Waiter) bool {
	select {
	case <-w.Payload.(chan struct{}):
		return true
	case <-ctx.Done():
		return false
	}
}

// decided returns the outcome of a waiter that began to wait at an instant, and
// gives its memory to the next waiter.
func (l *Limiter) decided(ctx context.Context, w *queue.Waiter, n, began int64, cancelled bool) (g queue.Grant, err error) {
	k := l.core
	if cancelled && !k.gate.Cancel(k.clock.Now(), w) {
		// Decided at the same moment: granted permits go to the next waiter.
		<-w.Payload.(chan struct{})
		if w.Outcome.Verdict == queue.Granted {
			l.counted(n)
			l.permit(w.Outcome.Grant, n, n).Release()
		}
	}
	o := w.Outcome
	w.Outcome = nil
	k.parked.Put(w)
	if cancelled {
		err = ctx.Err()
	} else if err = l.answer(o.Verdict, n); err == nil {
		g = o.Grant
	}
	l.all.waited(ctx, time.Duration(k.clock.Mono()-began), err)
	return g, err
}

// deadline returns the monotonic instant at which waiting ends, held within
// int64.
func deadline(ctx context.Context, now int64, maxWait time.Duration) int64 {
	end := after(now, maxWait)
	if d, ok := ctx.Deadline(); ok {
		end = min(end, after(now, max(0, time.Until(d))))
	}
	return end
}

// Waiter is a place in the queue, made by TakeFunc.
type Waiter struct {
	core   *core
	waiter *queue.Waiter
}

// Stop gives the place back. It returns true if the function will not run, and false if
// it has run or is about to. Any goroutine may call it. A second Stop returns false,
// as does that of the zero Waiter.
func (w Waiter) Stop() bool {
	if w.waiter == nil {
		return false
	}
	if t, ok := w.waiter.Payload.(*keyFunc); ok {
		return t.stop()
	}
	return w.core.gate.Cancel(w.core.clock.Now(), w.waiter)
}

// TakeFunc asks for n permits as Take does, without a waiting goroutine: it calls f
// with the permit or the error. f is called exactly once, unless Stop returned true; for waiters that
// are served together, in the queue's order. It runs on one goroutine of the limiter that serves all
// waiters, never within TakeFunc or under a lock. So f must not block. A waiter costs 64 bytes
// and the memory of f. A nil f asks for nothing; the mistake is logged.
func (l *Limiter) TakeFunc(n int64, maxWait time.Duration, f func(Permit, error)) Waiter {
	k := l.core
	if f == nil {
		k.log().Error("consumer: TakeFunc was called with a nil function: nothing is issued", "permits", n)
		return Waiter{}
	}
	if n <= 0 || l.bad {
		err := l.invalid(context.Background(), n)
		k.dispatch.add(k, &queue.Waiter{Payload: func(Permit, error) { f(Permit{}, err) }}, &queue.Outcome{Verdict: queue.Limited})
		return Waiter{}
	}
	w := &queue.Waiter{Owner: l.all.id, Payload: l.callback(f)}
	w.Want(n, l.class)
	began := k.clock.Mono()
	if onWait := l.all.onWait; onWait != nil {
		w.Payload = l.callback(func(p Permit, err error) {
			onWait(context.Background(), time.Duration(k.clock.Mono()-began), err)
			f(p, err)
		})
	}
	asked := w
	if maxWait <= 0 {
		asked = nil
	}
	g, v := l.ask(asked, n, deadline(context.Background(), began, maxWait))
	if v == queue.Queued {
		return Waiter{k, w}
	}
	w.Payload = l.callback(f) // it did not wait
	k.dispatch.add(k, w, &queue.Outcome{Grant: g, Verdict: v})
	return Waiter{}
}

func invalid(n int64) error {
	return fmt.Errorf("consumer: %w: %d permits asked for, at least 1 are needed", ErrInvalid, n)
}
