package window

// horizon bounds how many plans ahead the gate looks. Beyond it nobody is refused
// for being late: it is better to let somebody wait in vain than to refuse
// somebody who could have been served. A request too large for every plan within
// it is refused at once, for it would block all behind it.
const horizon = 64

// forecast tells when waiters will be served, by running a copy of the ledger
// ahead under the plans to come: the same code that will serve them. What it
// says holds while there is no news, nobody gives up, and permits are issued as
// soon as they can be.
type forecast struct {
	// plans are the plan in force, which has the number number, and those that
	// will follow it, as far as they were needed. There is always one.
	plans  []Plan
	number int
	void   bool // there is news: the plan in force must be made again

	// end is the ledger as it will be when all that wait are served, if valid.
	end   run
	spare run // used in turns with end
	valid bool
	// stale says that end errs by little: somebody was late, or gave up. It is
	// then made again, but not so often that a long queue would cost more than a
	// constant for each call.
	stale bool
	left  int64 // permits of those that gave up
	calls int   // since end was made from the present
	// beyond says that end stands at the horizon, because nobody can tell when the
	// last of those that wait will be served. So nobody can tell it of newcomers
	// either, until the horizon has moved on from the plan with the number from.
	beyond bool
	from   int
}

// run is a ledger on its way ahead.
type run struct {
	ledger ledger
	number int // of the ledger's plan
}

// short is the length of a queue that is cheap to go along at every call.
const short = 64

// move makes p the plan in force at the instant now. It reports whether p allows
// less than was foreseen.
func (f *forecast) move(p Plan, now int64) (less bool) {
	i := 0
	for i < len(f.plans) && f.plans[i].Until <= now {
		i++
	}
	less = f.void || i == len(f.plans) || p.worse(&f.plans[i])
	if less || p.Until != f.plans[i].Until || p.Offset != f.plans[i].Offset || f.plans[i].worse(&p) {
		f.plans, f.number = []Plan{p}, f.number+1
		f.valid, f.void = false, false
		return less
	}
	f.plans, f.number = f.plans[i:], f.number+i
	f.plans[0] = p
	return false
}

// plan returns the plan with that number, which is not before the one in force;
// nil beyond the horizon.
func (f *forecast) plan(g *Gate, number int) *Plan {
	for number-f.number >= len(f.plans) {
		last := &f.plans[len(f.plans)-1]
		if len(f.plans) > horizon || last.Until == Forever {
			return nil
		}
		f.plans = append(f.plans, g.planner.Foresee(last.Until))
	}
	return &f.plans[number-f.number]
}

// now makes r the ledger of the present.
func (r *run) now(g *Gate) {
	r.ledger.copyFrom(&g.mu.ledger)
	r.number = g.mu.forecast.number
	if left := g.segment.Load().left.Load(); left != sealed {
		r.ledger.charge(g.mu.published-left, g.mu.edge)
	}
	r.ledger.advance(g.mu.last)
}

// serve issues n permits as soon as that is possible, and returns when. known is
// false beyond the horizon; at is then the last instant that it has reached.
func (r *run) serve(g *Gate, n int64) (at int64, known bool) {
	for {
		if at, ok := r.ledger.when(n); ok {
			r.ledger.advance(at)
			r.ledger.pace(n)
			r.ledger.charge(n, at)
			return at, true
		}
		ended := r.ledger.plan.Until
		next := g.mu.forecast.plan(g, r.number+1)
		if next == nil {
			return ended, false
		}
		r.number++
		r.ledger.adopt(next, ended)
	}
}

// restart makes end the present: nobody waits.
func (f *forecast) restart(g *Gate) {
	f.end.now(g)
	f.valid, f.stale, f.left, f.calls = true, false, 0, 0
	f.beyond, f.from = false, f.number
}

// serve adds a waiter to end, unless that would be after its deadline.
func (f *forecast) serve(g *Gate, n, deadline int64) bool {
	at, known := f.try(g, n)
	if at > deadline {
		return false
	}
	if f.beyond = !known; known {
		f.end, f.spare = f.spare, f.end
	}
	return true
}

// try returns when n permits can be had behind all that wait, with spare as it
// will be then. known is false beyond the horizon; at is then the last instant
// before it.
func (f *forecast) try(g *Gate, n int64) (at int64, known bool) {
	if f.beyond {
		return f.horizon(g), false
	}
	f.spare.ledger.copyFrom(&f.end.ledger)
	f.spare.number = f.end.number
	return f.spare.serve(g, n)
}

// horizon returns the end of the last plan that is looked at.
func (f *forecast) horizon(g *Gate) int64 {
	for f.plan(g, f.number+len(f.plans)) != nil {
	}
	return f.plans[len(f.plans)-1].Until
}

// prepare makes end true for the queue as it is now, or nearly so.
func (f *forecast) prepare(g *Gate) {
	q := &g.mu.queue
	f.calls++
	switch {
	case q.length == 0, !f.valid, f.end.number < f.number:
	case !f.stale && f.left == 0 && !(f.beyond && f.from < f.number):
		return
	case q.length > short && f.calls <= q.length && f.left <= q.permits/8:
		return
	}
	f.restart(g)
	for w := q.head; w != nil && !f.beyond; w = w.next {
		f.serve(g, w.n, Forever)
	}
}

// join reports whether a newcomer that wants n permits can be served by the
// deadline, as far as is known, and counts it among those that wait.
func (f *forecast) join(g *Gate, n, deadline int64) bool {
	if !g.planLocked().Known {
		f.valid = false
		return true
	}
	f.prepare(g)
	return f.serve(g, n, deadline)
}

// estimate returns when a newcomer that wants n permits can have them. known is
// false if nobody can tell; when is then the earliest instant worth trying.
func (f *forecast) estimate(g *Gate, n int64) (when int64, known bool) {
	if !g.planLocked().Known {
		return g.segment.Load().until.Load(), false
	}
	f.prepare(g)
	return f.try(g, n)
}
