package window

import (
	"cmp"
	"math"
	"slices"
)

// forecast tells when waiters will be served, by running a copy of the ledger ahead
// under the plans to come: the same code that will serve them. The forecast holds
// while there is no news, no waiter gives up, and permits are issued as soon as
// they can be.
type forecast struct {
	// plans are the plan in force and later ones, in order, as far as they were
	// needed: where nothing can be issued anyway there are none. There is always
	// one. A plan in the list is replaced, not changed: ledgers point to it.
	plans []*Plan
	void  bool // there is news: the plan in force must be made again, and all later ones
	// proved says that the plan in force must be made again for its proof.
	proved bool

	// ends are the ends of the queue, one for each class.
	ends [Classes]end
}

// end is the end of the queue for a class: the callers of this class and of higher ones.
type end struct {
	// runs[last] is the ledger as it will be when all of them are served. The other is
	// spare, and used in turns with it.
	runs [2]run
	last int
	// errs is by about how many permits it errs: those of callers that gave up or came
	// before, and of debts; all, when it has to be made again at once. If it errs by few it is
	// not made again so often that a long queue would cost more than a constant for each call.
	errs  int64
	calls int // since it was made from the present
	// beyond says that it stands at the horizon: when the last waiter will be
	// served is unknown, except that it is not before reach. So it is for
	// newcomers, until time has moved on.
	beyond bool
	reach  int64
}

// run is a ledger on its way ahead.
type run struct {
	ledger ledger
	steps  int // plans that it went through
}

// short is the length of a queue that is cheap to go along at every call.
const short = 64

// move makes p the plan in force at the instant now. It reports whether p allows
// less than was foreseen.
func (f *forecast) move(p Plan, now int64) (less bool) {
	p.from, f.proved = now, false
	i := 0
	for i < len(f.plans) && f.plans[i].Until <= now {
		i++
	}
	same := false
	switch {
	case f.void || i == len(f.plans):
		less = true
	case f.plans[i].from > now: // the forecast passed over this time
		less = p.drifted(f.plans[i])
		same = p.Offset == f.plans[i].Offset
		i--
	default:
		o := f.plans[i]
		less = p.worse(o)
		same = !less && p.Until == o.Until && p.Offset == o.Offset && !o.worse(&p)
	}
	if !same {
		f.plans = []*Plan{&p}
		f.void = false
		f.forget()
		return less
	}
	for i := range f.ends {
		if e := &f.ends[i]; e.beyond && f.plans[0].Until <= now {
			e.errs = max(e.errs, 1)
		}
	}
	f.plans = slices.Replace(f.plans, 0, i+1, &p)
	return false
}

// plan returns the plan for an instant that is not before the present, at which
// a plan begins; nil for Forever.
func (f *forecast) plan(g *Gate, at int64) *Plan {
	if at == Forever {
		return nil
	}
	i, _ := slices.BinarySearchFunc(f.plans, at, func(p *Plan, at int64) int { return cmp.Compare(p.Until, at+1) })
	if i == len(f.plans) || f.plans[i].from > at {
		p := g.planner.Foresee(at)
		p.from = at
		f.plans = slices.Insert(f.plans, i, &p)
	}
	return f.plans[i]
}

// now makes r the ledger of the present.
func (r *run) now(g *Gate) {
	r.ledger.copyFrom(&g.mu.ledger)
	r.ledger.ahead, r.steps = true, 0
	r.ledger.charge(g.takenLocked(), g.mu.edge)
	r.ledger.advance(g.mu.last)
}

// serve issues n permits to a call of class c as soon as that is possible, and returns when. known is
// false beyond the horizon; it is then not before at.
func (r *run) serve(g *Gate, n int64, c Class) (at int64, known bool) {
	l := &r.ledger
	for {
		at, ok := l.when(l.next(n), c)
		if ok {
			l.advance(at)
			if l.release(n) == 0 {
				l.charge(n, at)
				return at, true
			}
			continue
		}
		if r.steps++; r.steps > g.planLocked().horizon() {
			return at, false
		}
		next := g.mu.forecast.plan(g, at)
		if next == nil {
			return at, false
		}
		if p := l.plan; p.Until < at && p.Shape.Bucket && !p.sameShares(next) { // buckets fill on the way
			at = p.Until
			next = g.mu.forecast.plan(g, at)
		}
		l.adopt(next, at)
		l.release(n)
	}
}

// forget has the ends made again.
func (f *forecast) forget() { f.skip(Critical, math.MaxInt64) }

// skip notes that n permits ahead of the callers of a class and of lower ones are not as
// foreseen.
func (f *forecast) skip(c Class, n int64) {
	for i := int(c); i < Classes; i++ {
		f.ends[i].errs = addCapped(f.ends[i].errs, n)
	}
}

func (e *end) run() *run   { return &e.runs[e.last] }
func (e *end) spare() *run { return &e.runs[1-e.last] }

// restart makes it the present, with an empty queue.
func (e *end) restart(g *Gate) {
	e.run().now(g)
	e.errs, e.calls, e.beyond = 0, 0, false
}

// serve adds a waiter, unless that would be after its deadline. One that may give its permits back
// (unsure) delays nobody behind it.
func (e *end) serve(g *Gate, n, deadline int64, c Class, unsure bool) bool {
	at, known := e.try(g, n, c)
	switch {
	case at > deadline:
		return false
	case unsure:
	case known:
		e.last = 1 - e.last
	default:
		e.beyond, e.reach = true, at
	}
	return true
}

// try returns when n permits can be had behind all that are counted, with spare as it
// will be then. known is false beyond the horizon; it is then not before at.
func (e *end) try(g *Gate, n int64, c Class) (at int64, known bool) {
	if e.beyond {
		return e.reach, false
	}
	now, spare := e.run(), e.spare()
	spare.ledger.copyFrom(&now.ledger)
	spare.steps = now.steps
	return spare.serve(g, n, c)
}

// prepare returns the end for a class, true for the queue as it is now, or nearly so.
func (f *forecast) prepare(g *Gate, c Class) *end {
	q, e := &g.mu.queue, &f.ends[c]
	length, permits := q.before(c + 1)
	e.calls++
	few := length > short && e.calls <= length && e.errs <= permits/8
	if length > 0 && (e.errs == 0 || few) && e.run().ledger.plan.Until > g.mu.last {
		return e
	}
	e.restart(g)
	for i := range q.lanes[:c+1] {
		for w := q.lanes[i].head; w != nil && !e.beyond; w = w.next {
			e.serve(g, w.n, Forever, w.class, w.Unsure)
		}
	}
	return e
}

// delay takes in that all that wait come after n more permits. In a short queue those
// that cannot be served in time any more are refused at once; a long one is not gone
// along for every debt.
func (f *forecast) delay(g *Gate, n int64) {
	if g.mu.queue.length() <= short {
		f.void = true
		return
	}
	f.skip(Critical, n)
}

// join reports whether a newcomer that wants n permits can be served by the deadline,
// as far as is known. If so, it counts among those that wait.
func (f *forecast) join(g *Gate, n, deadline int64, c Class, unsure bool) bool {
	if !g.planLocked().Known {
		f.forget()
		return true
	}
	return f.prepare(g, c).serve(g, n, deadline, c, unsure)
}

// estimate returns when a newcomer that wants n permits can have them. known is
// false beyond the horizon; when is then the earliest instant worth trying.
func (f *forecast) estimate(g *Gate, n int64, c Class) (when int64, known bool) {
	if !g.planLocked().Known {
		return g.segment.Load().until, false
	}
	return f.prepare(g, c).try(g, n, c)
}
