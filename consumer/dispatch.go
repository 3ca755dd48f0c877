package consumer

import (
	"sync"

	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// decided tells a waiter its outcome. The gate calls it under its lock, so it
// only hands over: a parked goroutine by its channel, which has room, and a
// function to the dispatcher.
func (k *core) decided(w *queue.Waiter, g queue.Grant, v queue.Verdict) {
	if !k.served.Load() {
		k.served.Store(true)
	}
	k.told(w, k.outcome.share(&queue.Outcome{Grant: g, Verdict: v}))
}

// told hands an outcome over, which never changes from then on.
func (k *core) told(w *queue.Waiter, o *queue.Outcome) {
	switch p := w.Payload.(type) {
	case chan struct{}:
		w.Outcome = o
		p <- struct{}{}
	default: // of TakeFunc
		k.dispatch.add(k, w, o)
	}
}

// lastOutcome is the newest outcome: all that are told it share its memory.
type lastOutcome struct{ *queue.Outcome }

func (l *lastOutcome) share(o *queue.Outcome) *queue.Outcome {
	if l.Outcome == nil || *l.Outcome != *o {
		shared := *o
		l.Outcome = &shared
	}
	return l.Outcome
}

// dispatcher runs the functions of TakeFunc, in order, on a goroutine of its own.
// They must not run under the gate's lock, nor on the goroutine that saw the new window
// first: it may hold locks of its own. The goroutine lives while there is work.
type dispatcher struct {
	mu          sync.Mutex
	first, last *queue.Waiter // the chain of those whose functions are to be called
	outcome     lastOutcome
	running     bool
}

func (d *dispatcher) add(k *core, w *queue.Waiter, o *queue.Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Outcome = d.outcome.share(o)
	if d.first == nil {
		d.first = w
	} else {
		d.last.Chain(w)
	}
	d.last = w
	if !d.running {
		d.running = true
		go d.run(k)
	}
}

func (d *dispatcher) run(k *core) {
	for {
		d.mu.Lock()
		w := d.first
		d.first = nil
		d.running = w != nil
		d.mu.Unlock()
		if w == nil {
			return
		}
		for w != nil {
			next := w.Next()
			w.Chain(nil)
			k.call(w)
			w = next
		}
	}
}

// call calls the function of a waiter that was told its outcome.
func (k *core) call(w *queue.Waiter) {
	if t, ok := w.Payload.(*keyFunc); ok {
		t.run()
		return
	}
	o, n, of := w.Outcome, w.N(), &k.classes[w.Class()]
	f, ok := w.Payload.(func(Permit, error))
	if !ok {
		l := w.Payload.(*labelledFunc)
		of, f = l.of, l.f
	}
	p, err := Permit{}, of.answer(o.Verdict, n)
	if err == nil {
		p = of.permit(o.Grant, n, n)
	}
	f(p, err)
}

// newParked returns a waiter for a goroutine, with the channel by which it is
// told: room for one, so that telling never blocks. Outcome is written before
// the channel is sent to, and read after it was received from. Such waiters are
// reused within one limiter: a channel must not leave the testing/synctest
// bubble it was made in.
func newParked() any { return &queue.Waiter{Payload: make(chan struct{}, 1)} }
