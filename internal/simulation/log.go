package simulation

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// state is the provider after one revision.
type state struct {
	at     int64 // true time of the commit
	change quota.Change
	view   quota.View
}

// world is one history: the log, and who lives through it.
type world struct {
	*rand.Rand
	kind   Kind
	fault  Fault
	e      int64 // bound of clock errors; the policies' clock_error
	end    int64 // of the history, true time
	outage int64 // from when etcd is away for all, MaxInt64: never

	states  []state
	actors  []*actor
	intents []intent // what is going to be committed, by time
	timing  []timed  // policies' timing, to know when S may be lowered

	lengths []time.Duration // every window length that a policy had
}

// intent is something that will happen at a true time.
type intent struct {
	at int64
	do func(at int64)
}

// timed is a freshness and until when it was the newest policy's.
type timed struct{ freshness, end int64 }

var lengthChoices = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, time.Second}

func newWorld(kind Kind, fault Fault, seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, uint64(kind))), kind: kind, fault: fault, outage: math.MaxInt64}
	w.e = []int64{1, 5, 20, 50}[w.IntN(4)] * ms
	first := w.policy(nil)
	size := 1 + w.IntN(3)
	w.end = 3*int64(first.Settle) + int64(size)*w.Int64N(1500)*ms + 1000*ms
	if kind == Hold {
		w.outage = int64(first.Settle) + w.Int64N(w.end-int64(first.Settle))
		w.end += 2 * int64(first.Settle)
	}
	w.commit(0, quota.Change{Revision: 1, Policy: first})
	for range 1 + w.IntN(2*size) {
		w.join(0)
	}
	for at := w.gap(size); at < w.end; at += w.gap(size) {
		w.plan(at, w.happen)
	}
	w.unroll()
	return w
}

func (w *world) gap(size int) int64 { return 1 + w.Int64N(1600*ms/int64(size)) }

func (w *world) plan(at int64, do func(at int64)) {
	i, _ := slices.BinarySearchFunc(w.intents, at, func(a intent, at int64) int {
		if a.at <= at {
			return -1
		}
		return 1
	})
	w.intents = slices.Insert(w.intents, i, intent{at, do})
}

// unroll makes the log.
func (w *world) unroll() {
	for len(w.intents) > 0 {
		next := w.intents[0]
		w.intents = w.intents[1:]
		if next.at < w.end && next.at < w.outage {
			next.do(next.at)
		}
	}
}

// commit appends one revision.
func (w *world) commit(at int64, c quota.Change) {
	var v quota.View
	if n := len(w.states); n > 0 {
		v = w.states[n-1].view
		at = max(at, w.states[n-1].at+1)
	}
	c.Revision = v.Revision + 1
	v.Revision = c.Revision
	v.Instances = apply(v.Instances, c)
	if c.Policy != nil || c.PolicyDeleted {
		v.Policy, v.PolicyRevision = c.Policy, c.Revision
		w.note(c.Policy, at)
	}
	w.states = append(w.states, state{at, c, v})
}

func apply(instances []quota.Instance, c quota.Change) []quota.Instance {
	next := make([]quota.Instance, 0, len(instances)+len(c.Put))
	for _, i := range instances {
		if !slices.Contains(c.Deleted, i.ID) && !slices.ContainsFunc(c.Put, func(p quota.Instance) bool { return p.ID == i.ID }) {
			next = append(next, i)
		}
	}
	return append(next, c.Put...)
}

// note remembers a policy's lengths and timing.
func (w *world) note(p *quota.Policy, at int64) {
	if n := len(w.timing); n > 0 {
		w.timing[n-1].end = min(w.timing[n-1].end, at)
	}
	if p == nil {
		return
	}
	w.timing = append(w.timing, timed{int64(p.Freshness), math.MaxInt64})
	for _, l := range p.Limits {
		w.addLength(l.Window)
	}
	for _, c := range p.Next {
		for _, l := range c.Limits {
			w.addLength(l.Window)
		}
	}
}

func (w *world) addLength(l time.Duration) {
	if !slices.Contains(w.lengths, l) {
		w.lengths = append(w.lengths, l)
	}
}

func (w *world) current() *quota.View { return &w.states[len(w.states)-1].view }

// settle is the newest policy's S, or what it was.
func (w *world) settle() int64 {
	if p := w.current().Policy; p != nil {
		return int64(p.Settle)
	}
	return int64(quota.DefaultSettle)
}

// happen is one random thing.
func (w *world) happen(at int64) {
	if w.kind == Calm {
		[]func(int64){w.join, w.leave, w.announce}[w.IntN(3)](at)
		return
	}
	switch w.IntN(10) {
	case 0, 1:
		w.join(at)
	case 2:
		w.leave(at)
	case 3:
		w.quit(at)
	case 4:
		w.crash(at)
	case 5:
		w.expire(at)
	case 6:
		w.announce(at)
	default:
		w.setPolicy(at)
	}
}

// alive returns a random incarnation that still has its key, and nil if there
// is none. In a calm history the first one stays.
func (w *world) alive() *actor {
	var live []*actor
	for i, a := range w.actors {
		if !a.leaving && (i > 0 || w.kind != Calm) {
			live = append(live, a)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return live[w.IntN(len(live))]
}

// stateAt returns the number of the newest state committed by true time t, and
// -1 before the first.
func (w *world) stateAt(t int64) int {
	n, _ := slices.BinarySearchFunc(w.states, t, func(s state, t int64) int {
		if s.at <= t {
			return -1
		}
		return 1
	})
	return n - 1
}
