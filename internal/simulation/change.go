package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

func wallTime(t int64) time.Time { return time.Unix(0, epoch+t) }

// join commits a new incarnation, announced or not.
func (w *world) join(at int64) {
	w.enter(at, fmt.Sprintf("i%d", len(w.actors)))
}

func (w *world) enter(at int64, id string) {
	in := quota.Instance{ID: id}
	if at > 0 && (w.kind == Calm || w.IntN(2) == 0) {
		in.From = wallTime(at + w.ahead())
	}
	w.commit(at, quota.Change{Put: []quota.Instance{in}})
	w.actors = append(w.actors, w.newActor(id, len(w.states)-1))
}

// ahead is how far ahead something is announced: mostly enough, not always.
func (w *world) ahead() int64 {
	if w.kind == Calm {
		return w.settle() + 2*w.e + 100*ms + w.Int64N(200*ms)
	}
	if w.IntN(4) == 0 {
		return w.Int64N(w.settle())
	}
	return w.settle() + 2*w.e + w.Int64N(200*ms)
}

// leave announces an end, goes on until then, and gives up the key after it.
func (w *world) leave(at int64) {
	a := w.alive()
	if a == nil {
		return
	}
	a.leaving = true
	until := at + w.ahead()
	a.announced, a.until = at, epoch+until
	w.plan(at+w.Int64N(50*ms), func(at int64) {
		for _, in := range w.current().Instances {
			if in.ID == a.id {
				in.Until = time.Unix(0, a.until)
				w.commit(at, quota.Change{Put: []quota.Instance{in}})
				return
			}
		}
	})
	gone := until + 2*w.e + w.Int64N(200*ms)
	a.stop = gone
	w.remove(gone+w.Int64N(50*ms), a)
}

// quit stops and gives up the key at once.
func (w *world) quit(at int64) {
	if a := w.alive(); a != nil {
		a.leaving, a.stop = true, at
		w.remove(at+1+w.Int64N(20*ms), a)
	}
}

// crash stops; the lease runs out later. Often the process starts again.
func (w *world) crash(at int64) {
	a := w.alive()
	if a == nil {
		return
	}
	a.leaving, a.stop = true, at
	w.remove(at+w.Int64N(w.settle()*2), a)
	w.restart(at+w.Int64N(400*ms), a)
}

// expire takes the key from a living instance, which may be cut off. The
// process joins again while the old incarnation may be alive still, as when it
// is paused.
func (w *world) expire(at int64) {
	a := w.alive()
	if a == nil {
		return
	}
	a.leaving = true
	if w.IntN(2) == 0 {
		from := max(0, at-w.Int64N(w.settle()))
		a.cuts = append(a.cuts, span{from, at + w.Int64N(2*w.settle())})
	}
	w.remove(at, a)
	w.restart(at+w.Int64N(400*ms), a)
}

func (w *world) restart(at int64, a *actor) {
	if w.IntN(2) == 0 {
		return
	}
	w.plan(at, func(at int64) {
		if w.fault == SameID {
			w.enter(at, a.id)
			return
		}
		w.join(at)
	})
}

func (w *world) remove(at int64, a *actor) {
	w.plan(at, func(at int64) {
		if w.fault == SameID && slices.ContainsFunc(w.actors, func(b *actor) bool { return b != a && b.id == a.id }) {
			return // the new life's key
		}
		w.commit(at, quota.Change{Deleted: []string{a.id}})
	})
}

// setPolicy commits a new policy, or none.
func (w *world) setPolicy(at int64) {
	if w.IntN(12) == 0 {
		w.commit(at, quota.Change{PolicyDeleted: true})
		return
	}
	p := w.policy(w.lastPolicy())
	if w.IntN(10) == 0 {
		p.Mode = quota.ModePause
	}
	w.lowered(p, at)
	if last := w.lastPolicy(); p.Settle < last.Settle {
		w.plan(at+w.Int64N(30*ms), w.join) // it knows nothing of the longer time
	}
	w.commit(at, quota.Change{Policy: p})
}

// announce commits limits that begin later.
func (w *world) announce(at int64) {
	old := w.lastPolicy()
	p := *old
	begin := at + w.ahead()
	// A change that is in force may become the policy's own limits once the
	// last window before it has ended on every clock.
	if n := len(old.Next); n > 0 && old.Next[n-1].From.Before(wallTime(at-1000*ms-2*w.e)) {
		p.Limits = old.Next[n-1].Limits
	} else if n > 0 && w.kind == Calm {
		return
	}
	p.Next = []quota.LimitChange{{From: wallTime(begin), Limits: w.limits(old)}}
	p.Mode = ""
	w.lowered(&p, at)
	w.commit(at, quota.Change{Policy: &p})
}

func (w *world) lastPolicy() *quota.Policy {
	for _, v := range slices.Backward(w.states) {
		if p := v.view.Policy; p != nil {
			return p
		}
	}
	return nil
}

// limits are one limit or two, mostly of the old lengths.
func (w *world) limits(old *quota.Policy) []quota.Limit {
	totals := []int64{0, 1, 2, 3, 5, 12, 40}
	var limits []quota.Limit
	if old != nil && (w.kind == Calm || w.IntN(3) > 0) {
		for _, l := range old.Limits {
			limits = append(limits, quota.Limit{Permits: totals[w.IntN(len(totals))], Window: l.Window})
		}
		return limits
	}
	lengths := 1
	if w.kind != Calm { // where two limits bind, neither may be used up
		lengths += w.IntN(2)
	}
	for range lengths {
		l := quota.Limit{Permits: totals[w.IntN(len(totals))], Window: lengthChoices[w.IntN(len(lengthChoices))]}
		if !slices.ContainsFunc(limits, func(o quota.Limit) bool { return o.Window == l.Window }) {
			limits = append(limits, l)
		}
	}
	return limits
}

// policy makes new limits, and a timing where that may change.
func (w *world) policy(old *quota.Policy) *quota.Policy {
	p := &quota.Policy{Limits: w.limits(old), ClockError: time.Duration(w.e), Outage: quota.OutageStop}
	if w.kind == Hold {
		p.Outage = quota.OutageHold
	}
	if old != nil && (w.kind != Timing || w.IntN(2) == 0) {
		p.Freshness, p.Settle, p.Guard = old.Freshness, old.Settle, old.Guard
		return p
	}
	p.Freshness = time.Duration(100+w.IntN(300)) * time.Millisecond
	if w.kind == Timing {
		p.Freshness = []time.Duration{100, 150, 400, 1000}[w.IntN(4)] * time.Millisecond
	}
	if w.kind == Calm {
		p.Freshness = 300 * time.Millisecond // reads may take a while
	} else if w.IntN(4) == 0 && w.e < 50*ms {
		p.Guard = time.Duration(w.e)
	}
	p.Settle = quota.MinSettleFor(p.Freshness, p.ClockError, time.Second)
	if w.IntN(3) == 0 {
		p.Settle += time.Duration(w.Int64N(200 * ms))
	}
	return p
}

// lowered keeps the rule for operators: the settle time of a policy must cover
// every older policy's freshness that an instance may still go by. Who joins
// after the change knows nothing of the older policy, so no instance can see to
// it.
func (w *world) lowered(p *quota.Policy, at int64) {
	if w.fault == SettleAtOnce {
		return
	}
	for _, t := range w.timing {
		needed := quota.MinSettleFor(time.Duration(t.freshness), p.ClockError, time.Second)
		if end := min(t.end, at); end+int64(needed) > at+int64(p.Settle) {
			p.Settle = needed
		}
	}
}
