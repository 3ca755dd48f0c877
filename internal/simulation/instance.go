package simulation

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// instance is the thin shell of one incarnation: what a limiter does, without
// waiting, around the real history.
type instance struct {
	*actor
	history  share.History
	first    int     // state that the history began with
	position int     // newest state whose events were applied
	revision int64   // given to the history; the log's times 1000
	proofs   []proof // read, but not yet delivered
	proved   bool
	proof    reading
	batch    quota.Change // Coalesce: what came at batchAt
	batchAt  int64
	index    map[time.Duration]int64 // newest window, per length
	used     map[quota.Window]int64
	grants   []grant
	staleUse bool  // was stale when it asked
	staleAt  int64 // the first time, true time
}

type reading struct{ mono, wall int64 }

type proof struct {
	state int
	sent  reading
}

// grant is a number of permits taken at once.
type grant struct {
	at, wall int64 // true time, corrected wall time of the window
	permits  int64
	// first and last are the oldest and the newest state that the history held.
	first, last int
}

// reading reads both clocks at true time t.
func (a *actor) reading(t int64) reading { return reading{a.clock.mono(t), a.clock.os(t)} }

// live lives through the actor's steps.
func (a *actor) live() {
	i := &a.inst
	*i = instance{actor: a, index: map[time.Duration]int64{}, used: map[quota.Window]int64{}, batchAt: math.MinInt64}
	for _, s := range a.steps {
		if s.at >= a.stop {
			break
		}
		if s.at != i.batchAt {
			i.flush()
		}
		i.step(s)
	}
}

func (i *instance) step(s step) {
	mono := i.clock.mono(s.at)
	switch s.do {
	case doReset:
		i.reset(s, mono)
	case doDeliver:
		i.deliver(s, mono)
	case doDeliverB:
		i.apply(mono, rest(i.states[s.a].change))
	case doOld:
		if int(s.a) <= i.position {
			i.apply(mono, i.states[s.a].change)
		}
	case doProof:
		p := proof{int(s.a), i.reading(s.b)}
		if i.fault == ProofByArrival {
			p.sent = i.reading(s.at)
		}
		i.proofs = append(i.proofs, p)
	case doAnnounce:
		i.history.Announce(i.until)
	case doAcquire, doWake:
		i.acquire(s.at, s.do == doWake && i.fault == TimerFlag)
	}
	i.settleProofs()
}

// reset takes the answer of a join or of a listing as the view.
func (i *instance) reset(s step, mono int64) {
	if s.b == 1 && !i.history.Started() {
		return // the watch was lost before the join was answered
	}
	i.position = max(i.position, int(s.a))
	if s.b == 1 && i.fault == GapKeepsHistory {
		i.applyView(mono, &i.states[i.position].view)
		return
	}
	at := mono
	if i.fault == JoinAtOnce {
		at = math.MinInt64
	}
	i.first = i.position
	i.history.Reset(at, i.id, i.states[i.position].view)
	i.revision = i.history.Revision() * 1000
	i.history.Apply(at, quota.Change{Revision: i.revision})
	i.proved = false
}

// applyView goes to a view as if that were one change.
func (i *instance) applyView(mono int64, v *quota.View) {
	c := quota.Change{Policy: v.Policy, PolicyDeleted: v.Policy == nil, Put: v.Instances}
	for _, s := range i.states {
		for _, p := range s.change.Put {
			if !slices.ContainsFunc(v.Instances, func(q quota.Instance) bool { return q.ID == p.ID }) {
				c.Deleted = append(c.Deleted, p.ID)
			}
		}
	}
	i.apply(mono, c)
}

func (i *instance) deliver(s step, mono int64) {
	if int(s.a) <= i.position || !i.history.Started() {
		return
	}
	i.position = int(s.a)
	switch c := i.states[s.a].change; i.fault {
	case Coalesce:
		i.batchAt = s.at
		i.batch.Revision = int64(i.position)
	case TwoWatches:
		i.apply(mono, policyOf(c))
	default:
		i.apply(mono, c)
	}
}

// flush applies what Coalesce gathered as one view.
func (i *instance) flush() {
	if i.batch.Revision > 0 {
		i.applyView(i.clock.mono(i.batchAt), &i.states[i.batch.Revision].view)
		i.batch.Revision = 0
	}
}

func (i *instance) apply(mono int64, c quota.Change) {
	if !i.history.Started() {
		return
	}
	i.revision++
	c.Revision = i.revision
	if !i.history.Apply(mono, c) {
		panic("a newer revision was ignored")
	}
}

// settleProofs takes the proofs whose revisions were delivered.
func (i *instance) settleProofs() {
	kept := i.proofs[:0]
	for _, p := range i.proofs {
		if !i.history.Started() || (p.state > i.position && i.fault != ProofWithoutPosition) {
			kept = append(kept, p)
			continue
		}
		if !i.proved || p.sent.mono > i.proof.mono {
			i.proved, i.proof = true, p.sent
		}
	}
	i.proofs = kept
}

// fresh compares the proof's age with S', by both clocks.
func (i *instance) fresh(now reading, rules *share.Rules) bool {
	age := now.mono - i.proof.mono
	if i.fault != MonoOnly {
		age = max(age, now.wall-i.proof.wall)
	}
	return i.fault == NoProof || i.proved && age <= int64(rules.Freshness)
}

// acquire takes what it may, or a part of it.
func (i *instance) acquire(t int64, asleep bool) {
	i.flush()
	if !i.history.Started() {
		return
	}
	if i.clock.behind(t) > i.e/2 && i.fault != SleepUnseen {
		return // the clocks disagree by more than a policy's clock error
	}
	now, wall := i.reading(t), i.clock.wall(t)
	offset := wall - now.mono
	rules := i.history.Rules(now.mono, offset)
	frozen := share.NotFrozen
	if !i.fresh(now, &rules) && !asleep {
		if i.kind != Hold || !i.proved {
			return
		}
		if !i.staleUse {
			i.staleUse, i.staleAt = true, t
		}
		if i.fault != HoldGrows {
			frozen = i.proof.mono - int64(rules.Settle)
		}
	}
	if i.fault == NewestSettle {
		p, _ := i.history.Policy()
		if p != nil {
			offset -= int64(rules.Settle) - int64(p.Settle)
		}
	}
	lengths := i.history.Lengths(now.mono, wall-now.mono)
	n := i.allowed(lengths, now.mono, wall, offset, frozen, &rules)
	if n <= 0 || n == share.Unbounded {
		return
	}
	if i.kind != Calm && i.IntN(3) == 0 {
		n = 1 + i.Int64N(n)
	}
	for _, l := range lengths {
		i.used[quota.WindowAt(l, wall)] += n
	}
	i.grants = append(i.grants, grant{t, wall, n, i.first, i.position})
}

// allowed is how many permits all limits admit together.
func (i *instance) allowed(lengths []time.Duration, mono, wall, offset, frozen int64, rules *share.Rules) int64 {
	n := share.Unbounded
	for _, l := range lengths {
		w := quota.WindowAt(l, wall)
		if w.Index < i.index[l] {
			panic("a window came back")
		}
		i.index[l] = w.Index
		if wall-w.Start() < int64(rules.Guard) || w.End()-wall <= int64(rules.Guard) {
			return 0
		}
		from := offset
		if i.fault == AnchorNow {
			from -= wall - w.Start() // the lookback starts S before now
		}
		b := i.history.Bound(w, mono, from, frozen).Permits
		if b != share.Unbounded {
			n = min(n, b-i.used[w])
		}
	}
	return n
}
