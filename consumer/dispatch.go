package consumer

import (
	"sync"

	"github.com/quotient-limiter/quotient/internal/window"
)

// decided tells a waiter its outcome. The gate calls it under its lock, so it
// only hands over: a parked goroutine by its channel, which has room, and a
// function to the dispatcher.
func (k *core) decided(w *window.Waiter, g window.Grant, v window.Verdict) {
	if !k.told.Load() {
		k.told.Store(true)
	}
	switch p := w.Payload.(type) {
	case chan struct{}:
		if k.outcome == nil || !k.outcome.Is(g, v) {
			k.outcome = &window.Outcome{Grant: g, Verdict: v}
		}
		w.Outcome = k.outcome
		p <- struct{}{}
	case func(Permit, error):
		k.dispatch.add(k, w, batch{outcome: window.Outcome{Grant: g, Verdict: v}, waited: true})
	}
}

// dispatcher runs the functions of AcquireFunc, in order, on a goroutine of its
// own: they must not run under the gate's lock, nor on the goroutine of whoever
// happened to see the new window first, which may hold locks of its own. The
// goroutine lives while there is work.
type dispatcher struct {
	mu      sync.Mutex
	batches []batch
	running bool
}

// batch is a chain of waiters with one outcome.
type batch struct {
	first, last *window.Waiter
	outcome     window.Outcome
	waited      bool // they were ready to wait
}

// add adds w to the newest batch, if that has the outcome of b, or begins b.
func (d *dispatcher) add(k *core, w *window.Waiter, b batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.batches); n > 0 && d.batches[n-1].waited == b.waited && d.batches[n-1].outcome.Is(b.outcome.Grant, b.outcome.Verdict) {
		d.batches[n-1].last.Chain(w)
		d.batches[n-1].last = w
	} else {
		b.first, b.last = w, w
		d.batches = append(d.batches, b)
	}
	if !d.running {
		d.running = true
		go d.run(k)
	}
}

func (d *dispatcher) run(k *core) {
	for {
		d.mu.Lock()
		batches := d.batches
		d.batches = nil
		if len(batches) == 0 {
			d.running = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		for _, b := range batches {
			k.call(b)
		}
	}
}

// call calls the functions of a batch, whose permits are of one window.
func (k *core) call(b batch) {
	for w := b.first; w != nil; {
		next := w.Next()
		w.Chain(nil)
		p, err := Permit{}, k.answer(b.outcome.Verdict, w.N(), b.waited)
		if err == nil {
			p = k.permit(b.outcome.Grant, w.N(), w.N())
		}
		w.Payload.(func(Permit, error))(p, err)
		w = next
	}
}

// newParked returns a waiter for a goroutine, with the channel by which it is
// told: room for one, so that telling never blocks. Outcome is written before
// the channel is sent to, and read after it was received from. Such waiters are
// reused within one limiter: a channel must not leave the testing/synctest
// bubble it was made in.
func newParked() any { return &window.Waiter{Payload: make(chan struct{}, 1)} }
