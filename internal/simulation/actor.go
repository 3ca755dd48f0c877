package simulation

import (
	"cmp"
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/quota"
)

// actor is one incarnation and what will happen to it.
type actor struct {
	*world
	id        string
	number    int
	joined    int   // the state that its join made
	leaving   bool  // it gives up its key, or lost it
	announced int64 // when it announced its end; MaxInt64: not
	until     int64 // corrected wall time of the announced end
	stop      int64 // true time after which it does nothing

	clock  hostClock
	cuts   []span // no answer from etcd
	stalls []span // the process does not run

	inst  instance // its life
	steps []step
	seen  []int64 // true time at which it handles each state's events
}

// step is something that an actor does at a true time.
type step struct {
	at  int64
	tie uint32 // order among equal instants
	do  action
	a   int64 // meaning depends on do
	b   int64
}

type action uint8

const (
	doReset    action = iota // a: state that the listing answered with
	doDeliver                // a: state whose events came
	doDeliverB               // the same by the second watch, for TwoWatches
	doOld                    // a: state whose events come once more
	doProof                  // a: state that the read returned, b: true time of the read's start
	doAnnounce               // own end
	doAcquire                // as many permits as possible
	doWake                   // the same, first thing after a stall
)

func (w *world) newActor(id string, joined int) *actor {
	return &actor{world: w, id: id, number: len(w.actors), joined: joined,
		announced: math.MaxInt64, stop: math.MaxInt64, clock: newClock(w.Rand, w.actualError())}
}

// actualError is how far clocks are off in truth.
func (w *world) actualError() int64 {
	if w.fault == SlowClocks {
		return 10*w.e + 300*ms
	}
	return w.e
}

// troubles draws what goes wrong in the actor's life, from true time from on.
func (a *actor) troubles(from int64) {
	a.stop = min(a.stop, a.end)
	s := a.settle()
	at := func() int64 { return from + a.Int64N(max(1, a.stop-from)) }
	switch a.kind {
	case Hold:
		a.cuts = []span{{a.outage, math.MaxInt64}}
		return
	case Calm:
		return
	}
	if a.IntN(3) == 0 {
		t := at()
		a.cuts = append(a.cuts, span{t, t + a.Int64N(2*s)})
	}
	for range a.IntN(3) {
		t := at()
		a.stalls = append(a.stalls, span{t, t + 1 + a.Int64N(s+200*ms)})
	}
	if a.IntN(4) == 0 {
		t := at()
		a.clock.suspend = span{t, t + 1 + a.Int64N(s)}
		if a.IntN(2) == 0 {
			a.clock.resync = a.clock.suspend.to + a.Int64N(600*ms)
		}
		a.clock.e /= 2 // a suspension of half of e stays unseen
		a.stalls = append(a.stalls, a.clock.suspend)
	}
}

// troubled reports whether watches are lost and hang in this kind of history.
func (w *world) troubled() bool { return w.kind == Stop || w.kind == Timing }

// blocked moves t to the end of the spans that hold it.
func blocked(t int64, spans []span) int64 {
	for moved := true; moved; {
		moved = false
		for _, s := range spans {
			if s.holds(t) {
				t, moved = s.to, true
			}
		}
	}
	return t
}

// prepare makes the actor's steps.
func (a *actor) prepare() {
	commit := a.states[a.joined].at
	start := blocked(commit+a.delay(), a.cuts)
	a.troubles(start)
	a.steps = append(a.steps, step{a.run(start), 0, doReset, int64(a.joined), 0})
	a.watch(start, a.joined, doDeliver)
	if a.troubled() && a.IntN(6) == 0 {
		a.compact(start)
	}
	if a.fault == TwoWatches {
		a.watch(start, a.joined, doDeliverB)
	}
	if a.fault == OldEvent {
		a.repeat()
	}
	a.read(start)
	if a.announced < math.MaxInt64 {
		a.add(max(start, a.announced), doAnnounce, 0, 0)
	}
	every := 80 * ms
	if a.kind == Calm {
		every = 10 * ms
	}
	for t := start; t < a.stop; t += 1 + a.Int64N(every) {
		a.add(a.run(t), doAcquire, 0, 0)
	}
	for _, s := range a.stalls {
		a.add(a.run(s.to), doWake, 0, 0)
		a.steps[len(a.steps)-1].tie = 2 + uint32(a.IntN(2))*(math.MaxUint32-2)
	}
	slices.SortStableFunc(a.steps, func(x, y step) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.tie, y.tie))
	})
}

// run is when something that becomes possible at t is done: not in a stall.
func (a *actor) run(t int64) int64 { return blocked(t, a.stalls) }

func (a *actor) add(at int64, do action, x, y int64) {
	a.steps = append(a.steps, step{at, 1 << 30, do, x, y})
}

// delay is a network delay: short mostly, now and then long.
func (a *actor) delay() int64 {
	if n := a.IntN(12); a.kind == Calm {
		return a.Int64N(8 * ms)
	} else if n == 0 {
		return a.Int64N(300 * ms)
	} else if n == 1 {
		return a.Int64N(60 * ms)
	}
	return a.Int64N(8 * ms)
}

// watch delivers the events of every state after number first, in order and
// each after its own delay; what is held up holds up what follows.
func (a *actor) watch(start int64, first int, do action) {
	seen := make([]int64, len(a.states))
	last := start
	held := span{math.MaxInt64, 0} // a watch that hangs, although reads answer
	if a.troubled() && a.IntN(3) == 0 {
		t := start + a.Int64N(max(1, a.stop-start))
		held = span{t, t + a.Int64N(3*a.settle())}
	}
	for i := first + 1; i < len(a.states); i++ {
		t := a.states[i].at + a.delay()
		t = max(last, blocked(t, append(slices.Clip(a.cuts), held)))
		last, seen[i] = t, a.run(t)
		a.add(a.run(t), do, int64(i), 0)
	}
	if do == doDeliver {
		a.seen = seen
	}
}

// compact loses the watch at a random time: what had not come is replaced by a
// listing.
func (a *actor) compact(start int64) {
	lost := start + a.Int64N(max(1, a.stop-start))
	answer := a.run(blocked(lost+a.delay(), a.cuts))
	if answer == math.MaxInt64 {
		return
	}
	listed := max(a.joined, a.stateAt(lost+a.Int64N(answer-lost+1)))
	kept := a.steps[:0]
	for _, s := range a.steps {
		if s.do == doDeliver && s.at >= lost {
			if int(s.a) <= listed {
				continue
			}
			s.at = max(s.at, answer)
		}
		kept = append(kept, s)
	}
	a.steps = kept
	for i := range a.seen {
		if a.seen[i] >= lost {
			a.seen[i] = max(a.seen[i], answer)
		}
	}
	a.steps = append([]step{{answer, 1, doReset, int64(listed), 1}}, a.steps...)
}

// repeat lets an event come a second time, later.
func (a *actor) repeat() {
	for _, s := range slices.Clone(a.steps) {
		if s.do == doDeliver && a.IntN(4) == 0 {
			a.add(a.run(s.at+a.Int64N(500*ms)), doOld, s.a, 0)
		}
	}
}

// read proves the view recent, again and again: a linearizable read is sent,
// answered with the newest revision at some time in between, and counts when
// the watch has delivered that.
func (a *actor) read(start int64) {
	every := 15*ms + a.Int64N(60*ms)
	for t := start; t < a.stop; t += every {
		sent := a.run(t)
		there := sent + a.delay()
		back := there + a.delay()
		if sent != t || a.cutWithin(t, back) {
			continue
		}
		newest := a.stateAt(there)
		if a.fault == ProofByAnyAnswer {
			newest = 0
		}
		a.add(a.run(back), doProof, int64(newest), sent)
	}
	if a.fault == ProofByAnyAnswer { // the lagging member answers all the time
		for t := start; t < a.stop; t += every {
			a.add(a.run(t), doProof, 0, a.run(t))
		}
	}
}

func (a *actor) cutWithin(from, to int64) bool {
	for _, c := range a.cuts {
		if from < c.to && c.from <= to {
			return true
		}
	}
	return false
}

// policyOf is what a change does to the policy alone, and rest what else.
func policyOf(c quota.Change) quota.Change {
	return quota.Change{Policy: c.Policy, PolicyDeleted: c.PolicyDeleted}
}

func rest(c quota.Change) quota.Change { return quota.Change{Put: c.Put, Deleted: c.Deleted} }
