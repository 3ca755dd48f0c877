package consumer

import (
	"sync"
	"sync/atomic"
	"time"

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
		k.dispatch.add(k, w, g, v)
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
}

func (d *dispatcher) add(k *core, w *window.Waiter, g window.Grant, v window.Verdict) {
	d.mu.Lock()
	if n := len(d.batches); n > 0 && d.batches[n-1].outcome.Is(g, v) {
		d.batches[n-1].last.Chain(w)
		d.batches[n-1].last = w
	} else {
		d.batches = append(d.batches, batch{w, w, window.Outcome{Grant: g, Verdict: v}})
	}
	if !d.running {
		d.running = true
		go d.run(k)
	}
	d.mu.Unlock()
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
	granted, p := b.outcome.Verdict == window.Granted, k.permit(b.outcome.Grant, 0)
	for w := b.first; w != nil; {
		next := w.Next()
		w.Chain(nil)
		switch f, ok := w.Payload.(func(Permit, error)); {
		case !ok:
		case granted:
			p.N, p.serial = w.N(), k.returned.serial.Add(1)
			f(p, nil)
		default:
			k.refused.inVain.Add(w.N())
			f(Permit{}, k.reject(b.outcome.Verdict, w.N()))
		}
		w = next
	}
}

// newParked returns a waiter for a goroutine, with the channel by which it is
// told: room for one, so that telling never blocks. Outcome is written before
// the channel is sent to, and read after it was received from. Such waiters are
// reused within one limiter: a channel must not leave the testing/synctest
// bubble it was made in.
func newParked() any { return &window.Waiter{Payload: make(chan struct{}, 1)} }

// returns remembers which permits of the running epoch were given back, so that
// none is given back twice.
type returns struct {
	serial atomic.Uint64 // numbers the permits

	mu    sync.Mutex
	epoch uint64
	gone  map[uint64]struct{}
}

// first reports whether the permit is returned for the first time.
func (r *returns) first(p *Permit) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone == nil || r.epoch != p.grant.Epoch {
		if p.grant.Epoch < r.epoch {
			return false
		}
		r.epoch, r.gone = p.grant.Epoch, map[uint64]struct{}{}
	}
	if _, twice := r.gone[p.serial]; twice {
		return false
	}
	r.gone[p.serial] = struct{}{}
	return true
}

// Permit is the right to make N calls between Start and Until.
type Permit struct {
	// Start and Until bound the window, of the policy's shortest limit, for which
	// the permits were issued: corrected wall-clock time, without a monotonic
	// reading. A call that starts at or after Until is not covered.
	Start, Until time.Time
	// N is the number of permits.
	N int64

	core   *core
	grant  window.Grant
	serial uint64
}

func (k *core) permit(g window.Grant, n int64) Permit {
	return Permit{
		Start: time.Unix(0, g.Start), Until: time.Unix(0, g.End), N: n,
		core: k, grant: g, serial: k.returned.serial.Add(1),
	}
}
