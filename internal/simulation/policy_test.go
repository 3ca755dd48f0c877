package simulation

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

var lengthChoices = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, time.Second}

var totalChoices = []int64{0, 1, 2, 3, 5, 12, 40}

// newPolicy makes limits, and a timing where that may change.
func (p *plan) newPolicy(r *rand.Rand, old *quota.Policy) *quota.Policy {
	return p.pacing.paced(p.forming.formed(p.vary(p.sharing.shared(p.timedPolicy(r, old)))))
}

func (p *plan) timedPolicy(r *rand.Rand, old *quota.Policy) *quota.Policy {
	n := &quota.Policy{Limits: p.limits(r, old), ClockError: time.Duration(p.e), Outage: quota.OutageStop}
	if p.kind == Hold || p.kind == Split || p.kind == Switch && p.aside.IntN(2) == 0 {
		n.Outage = quota.OutageHold
	}
	if old != nil && (p.kind != Timing || r.IntN(2) == 0) {
		n.Freshness, n.Settle, n.Guard, n.ClockError = old.Freshness, old.Settle, old.Guard, old.ClockError
		return n
	}
	n.Freshness = time.Duration(100+r.IntN(300)) * time.Millisecond
	switch p.kind {
	case Timing:
		n.Freshness = []time.Duration{100, 150, 400, 1000}[r.IntN(4)] * time.Millisecond
		n.ClockError += time.Duration(r.Int64N(2) * 20 * ms)
	case Calm:
		n.Freshness = 300 * time.Millisecond // reads may take a while
	}
	if p.kind != Calm && r.IntN(4) == 0 && p.e <= 40*ms {
		n.Guard = time.Duration(p.e)
	}
	n.Settle = quota.MinSettleFor(n.Freshness, n.ClockError, p.forming.drift())
	if r.IntN(3) == 0 {
		n.Settle += time.Duration(r.Int64N(200 * ms))
	}
	return n
}

// limits are one limit or two, mostly of the old lengths.
func (p *plan) limits(r *rand.Rand, old *quota.Policy) []quota.Limit {
	total := func() int64 { return totalChoices[r.IntN(len(totalChoices))] }
	var limits []quota.Limit
	if old != nil && (p.kind == Calm || r.IntN(3) > 0) {
		for _, l := range old.Limits {
			limits = append(limits, quota.Limit{Permits: total(), Window: l.Window})
		}
		return limits
	}
	lengths := 1
	if p.kind != Calm { // where two limits bind, neither may be used up
		lengths += r.IntN(2)
	}
	for range lengths {
		l := quota.Limit{Permits: total(), Window: lengthChoices[r.IntN(len(lengthChoices))]}
		if p.guarded(l.Window) && !slices.ContainsFunc(limits, func(o quota.Limit) bool { return o.Window == l.Window }) {
			limits = append(limits, l)
		}
	}
	if len(limits) == 0 {
		limits = append(limits, quota.Limit{Permits: total(), Window: time.Second})
	}
	return limits
}

// guarded reports whether a window leaves room between two guards.
func (p *plan) guarded(w time.Duration) bool { return int64(w) > 4*p.e || p.e > 40*ms }

// timed is a freshness and until when it was the newest policy's.
type timed struct {
	freshness time.Duration
	err       time.Duration
	end       int64
}

// note remembers what was committed.
func (w *world) note(p *quota.Policy) {
	if p == nil {
		w.unset = w.unset || w.etcd.view().Policy == nil
		return
	}
	if n := len(w.timed); n > 0 {
		w.timed[n-1].end = min(w.timed[n-1].end, w.now)
	}
	w.timed = append(w.timed, timed{p.Freshness, p.ClockError, math.MaxInt64})
	add := func(limits []quota.Limit) {
		for _, l := range limits {
			if !slices.Contains(w.lengths, l.Window) {
				w.lengths = append(w.lengths, l.Window)
			}
		}
	}
	add(p.Limits)
	for _, c := range p.Next {
		add(c.Limits)
	}
}

// lowered keeps coordinator.Admin's rule for operators: the settle time of a
// policy must cover every older policy's freshness that an instance may still go
// by. Who joins after the change knows nothing of the older policy, so no
// instance can see to it.
func (w *world) lowered(p *quota.Policy) {
	if w.trick(LoweredAtOnce) {
		return
	}
	for _, t := range w.timed {
		needed := quota.MinSettleFor(t.freshness, max(t.err, p.ClockError), w.forming.drift())
		if end := min(t.end, w.now); end+int64(needed) > w.now+int64(p.Settle) {
			p.Settle = needed
		}
	}
}

// lastPolicy is the newest policy that there was.
func (w *world) lastPolicy() *quota.Policy {
	for i := range slices.Backward(w.etcd.states) {
		if p := w.etcd.states[i].view.Policy; p != nil {
			return p
		}
	}
	return w.first
}

// setPolicy commits a policy, when that can be.
func (w *world) setPolicy(p *quota.Policy) {
	fitted(p)
	w.etcd.write(func() {
		if len(w.etcd.states) > 0 && w.kind == Timing {
			w.lowered(p)
		}
		if d := p.WithDefaults(); d.Validate() != nil && w.mutant == nil {
			panic(d.Validate())
		}
		w.etcd.commit(change{policy: p})
	})
}
