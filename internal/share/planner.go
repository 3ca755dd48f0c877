package share

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// Planner makes plans for one instance by what it knows of a provider: the views
// that it has held, the newest proof that they are recent,
// the clock, and until when the provider wants to be left alone. The rules of
// freshness and outage are here and nowhere else; the limiter and its tests
// run both this code.
//
// A Planner with a Clock knows nothing and allows nothing. It reads no clock and
// takes no lock: every method takes the instant at which it happens, and the
// caller keeps calls apart.
type Planner struct {
	// History is the views held. Reset and Apply are the planner's own.
	History
	// Clock corrects the time. Never changes.
	Clock *clock.Clock
	// Lends says that this instance can tell others what it lends and asks for.
	Lends bool
	// borrows says that this instance may borrow permits of the provider, as of the latest Plan.
	borrows bool
	cut     bool   // see Cut
	phase   uint64 // of pacing; sets instances out of step
	again   bool   // this incarnation had a history before

	proof  clock.Instant // the newest; meaningful if proved
	proved bool
	// stale says that the view is too old for the rule hold; frozen then bounds
	// the lookback. Both are as of the latest Plan, and so is offset.
	stale  bool
	frozen int64
	offset int64
	alone  bool // in the fleet, for ever
	keyed  keyed
	over   int64 // the latest corrected wall time that was reached
	// paused is the monotonic instant before which nothing is issued, or 0.
	paused int64
	// warmFrom is when this instance first had a share, if warm.
	warm     bool
	warmFrom int64
	heldBack bool // the latest warm-up is that after a pause
}

// Reset starts a new history, as History.Reset. The proof of the old one is gone.
func (p *Planner) Reset(at clock.Instant, self string, v protocol.View) {
	p.again = p.Started() && p.self == self
	p.History.Reset(at.Mono, self, v)
	p.alone = v.Alone
	p.proof, p.proved, p.stale, p.phase = clock.Instant{}, false, false, hashID(self)
}

// Apply moves the newest view on by one revision, and forgets the views that no
// window can look back to any more.
func (p *Planner) Apply(at clock.Instant, c protocol.Change) bool {
	oldest := at.Mono
	if p.proved {
		oldest = min(oldest, p.proof.Mono)
	}
	p.Prune(oldest - int64(quota.MaxSettle+3*quota.MaxWindow) - int64(quota.MaxSettle))
	return p.History.Apply(at.Mono, c)
}

// Prove says that the view held contains everything that was committed before
// the instant sent. It returns true if plans made before are void, because
// permits that were held back may be issued again.
func (p *Planner) Prove(sent clock.Instant) (news bool) {
	news = !p.proved || p.stale
	if !p.proved || sent.Mono > p.proof.Mono {
		p.proof, p.proved = sent, true
	}
	return news
}

// Proved returns the newest proof, and false if there is none.
func (p *Planner) Proved() (sent clock.Instant, ok bool) { return p.proof, p.proved }

// Silent reports whether the newest proof is over, since etcd has not answered for longer than the policies allow.
func (p *Planner) Silent(at clock.Instant) bool {
	return p.proved && !p.fresh(at, p.Rules(at.Mono))
}

// PauseUntil makes plans issue nothing before a monotonic instant. With warm, a warm-up
// begins again at it: windows of up to a second have one also if the policy has none.
func (p *Planner) PauseUntil(mono int64, warm bool) {
	if p.paused = mono; warm {
		p.warmFrom, p.heldBack = mono, true
	}
}

// PausedUntil returns that instant; 0 if there is none.
func (p *Planner) PausedUntil() int64 { return p.paused }

// FreshUntil returns the end of the proof by both clocks: the beginning of time
// if there is none, and, under the rule stop, if the clock is wrong: the proof
// cannot be relied on then.
func (p *Planner) FreshUntil(r Rules) (mono, wall int64) {
	if !p.proved {
		return math.MinInt64, math.MinInt64
	}
	if _, wrong := p.ClockWrong(r); wrong && r.Outage == quota.OutageStop {
		return math.MinInt64, math.MinInt64
	}
	return p.proof.Mono + int64(r.Freshness), p.proof.Wall + int64(r.Freshness)
}

// ClockWrong reports whether the clock was measured to err, perhaps, by more than
// the policies allow, and the bound that was measured: the settle rule's proof then
// says nothing of this instance. A clock that was never measured is no evidence.
func (p *Planner) ClockWrong(r Rules) (bound time.Duration, wrong bool) {
	bound, known := p.Clock.Measured()
	return bound, known && bound > r.ClockError
}

// Plan implements window.Planner. It has the clock look for a suspension first. It
// decides whether shares look back further: they do while the view is stale under the
// rule hold.
func (p *Planner) Plan(at clock.Instant) plans.Plan {
	if !p.Started() {
		return plans.Plan{Until: clock.Forever, Keys: plans.Unheard}
	}
	p.Clock.Observe(at)
	p.offset = p.Clock.Offset()
	p.over = max(p.over, at.Mono+p.offset)
	rules := p.Rules(at.Mono)
	proof, stale := p.proofBy(rules), !p.fresh(at, rules)
	if p.stale = stale && !proof.Strict; p.stale {
		p.frozen = p.proof.Mono - int64(rules.Settle)
	} else {
		p.outlive(at.Mono)
	}
	plan := p.plan(at.Mono, rules)
	p.borrows, p.cut = plan.Lending.Borrows, plan.Lending.Cut
	plan.Keys = p.keep(plan.Keys)
	if stale && proof.Strict {
		plan.Known = false
	}
	if !p.warm {
		p.warm = slices.ContainsFunc(plan.Limits, func(l plans.Limit) bool { return l.Permits > 0 && l.Permits != Unbounded })
		p.warmFrom, p.heldBack = max(p.warmFrom, at.Mono), p.heldBack && p.warmFrom > at.Mono
	}
	return plan
}

// Foresee implements window.Planner.
func (p *Planner) Foresee(mono int64) plans.Plan {
	if !p.Started() {
		return plans.Plan{Until: clock.Forever, Keys: plans.Unheard}
	}
	return p.plan(mono, p.Rules(mono))
}

// fresh reports whether the proof lasts at the instant at.
func (p *Planner) fresh(at clock.Instant, r Rules) bool {
	until, wall := p.FreshUntil(r)
	return at.Mono < until && at.Wall < wall
}

// proofBy returns the proof that binds plans.
func (p *Planner) proofBy(r Rules) plans.Proof {
	proof := plans.Proof{Until: clock.Forever, WallUntil: clock.Forever, Lead: p.offset + int64(p.Clock.Ahead()) + clock.Tolerance}
	proof.Strict = r.Outage == quota.OutageStop || !p.proved
	if proof.Strict {
		proof.Until, proof.WallUntil = p.FreshUntil(r)
	}
	return proof
}

// plan returns the plan that follows from the views held for the instant now, by
// the offset of the latest Plan.
func (p *Planner) plan(now int64, r Rules) plans.Plan {
	policy, _ := p.Policy()
	wall := now + p.offset
	plan := plans.Plan{
		Until: clock.Forever, Proof: p.proofBy(r), Shape: p.boundShape(now),
		Windows:  plans.Windows{Offset: p.offset, Guard: int64(r.Edges), Over: max(p.over, wall)},
		Hopeless: policy == nil, Known: policy != nil && p.Registered(),
	}
	if now < p.paused {
		plan.Shut, plan.PausedUntil, plan.Until = true, p.paused, p.paused
	}
	ends := func(wall int64) {
		if mono := sub(wall, p.offset); mono > now {
			plan.Until = min(plan.Until, mono)
		}
	}
	if p.bent { // a share may grow once the shape has gone: see outlive
		ends(add(p.straight(), p.offset))
	}
	runs := func(start, end, guard int64) (shut bool) {
		ends(start + guard)
		ends(end - guard)
		ends(end)
		return wall < start+guard || wall >= end-guard
	}
	if policy != nil {
		plan.Shadow = policy.Mode == quota.ModeShadow
		plan.Critical = max(0, min(policy.Critical, 100)) // etcd may hold anything
		plan.Pacing = shape.Pacing{Even: policy.Pacing == quota.PacingEven, Phase: p.phase}
		plan.Lending = p.lending(now, policy)
		for _, l := range protocol.Long(policy) {
			b := protocol.BudgetOf(l, &p.newest().rules, p.newest().zone, wall, p.phase)
			b.Whole = p.alone
			plan.Budgets = append(plan.Budgets, b)
			plan.Shut = runs(b.Start, b.End, b.GuardOf(r.Guard)) || plan.Shut
		}
	}
	plan.Keys = p.keys(wall, r, plan.Lending, runs)
	if plan.Shape.Unaligned {
		plan.Guard = 0 // it is the transit's, and no edge's
	}
	// A length that does not bind yet may, from its next window on.
	for i := range p.terms {
		for _, length := range p.terms[i].lengths {
			ends(quota.WindowAt(length, wall).End())
		}
	}
	lengths := p.Lengths(now, p.offset)
	none := len(lengths) == 0 // as before a policy is in force
	for _, length := range lengths {
		w := quota.WindowAt(length, wall)
		b, d := p.Bound(Key{}, w, now), p.totals(w)
		plan.Running = append(plan.Running, w)
		plan.Limits = append(plan.Limits, plans.Limit{Window: w, Permits: p.warmed(b.Permits, w, policy), Burst: b.Burst, Most: p.warmed(b.Most, w, policy),
			Limit: d.total, Later: p.newest().later(length, wall), Instances: b.Instances})
		plan.Shut = runs(w.Start(), w.End(), plan.Guard) || plan.Shut
		if plan.Shape.Any() {
			ends(plan.Shape.Grows(length, wall))
		}
		none = none || b.Permits == 0
	}
	if !plan.Lendable() {
		plan.Lending.Lends, plan.Lending.Borrows, plan.Lending.Cut = false, false, false
	}
	if begins, ok := p.Begins(); ok && none {
		plan.Begins = sub(begins, p.offset)
	}
	return plan
}

// Bound returns how many permits of a key this instance may have issued in window w by the monotonic instant now, as
// of the latest Plan. The provider is the key with the empty name. What was counted for the provider is
// kept, so that the next answer costs the changes since. For any other key all is counted anew, in O(instances and
// changes since the settle time): its Account keeps the answer until the plan's Keys are others.
func (p *Planner) Bound(key Key, w quota.Window, now int64) Bound {
	if key.Name == "" {
		return p.History.Bound(w, now, p.offset, p.frozenAt())
	}
	return p.boundBy(func(w quota.Window, low int64) *boundCache {
		t := p.begin(w, low, &key)
		p.extend(t)
		return t
	}, w, now, p.offset, p.frozenAt())
}

// frozenAt bounds the lookback, as of the latest Plan.
func (p *Planner) frozenAt() int64 {
	if p.stale {
		return p.frozen
	}
	return NotFrozen
}

// Held is History.Held for the shortest window that runs at the instant now.
func (p *Planner) Held(now int64) (ids []string, until int64) {
	lengths := p.Lengths(now, p.offset)
	if len(lengths) == 0 || p.stale { // while it is stale nobody knows the end
		return nil, 0
	}
	return p.History.Held(quota.WindowAt(lengths[0], now+p.offset), now, p.offset)
}

const (
	// coldest is the part of its share that a fresh instance begins with: one in coldest.
	coldest = 3
	// comeback is the warm-up after a pause where the policy has none. Windows longer than
	// half of it have none: a third of a minute's share would be more of a pause.
	comeback = int64(2 * time.Second)
)

// warmed returns the part of a share that a warm-up leaves in window w: at first a
// third, growing linearly to the whole, as Guava's warming-up limiter begins; at
// least one permit, if there is one. The first share that there is begins the
// warm-up, once for an instance. Until there is one, it begins when that is foretold; or now, if it is
// not, so that no share is foreseen as less than it will be.
func (p *Planner) warmed(share int64, w quota.Window, policy *quota.Policy) int64 {
	if share <= 0 || share == Unbounded || policy == nil {
		return share
	}
	span, from := int64(policy.WarmUp), add(p.warmFrom, p.offset)
	if span == 0 && p.heldBack && 2*int64(w.Length) <= comeback {
		span = comeback
	} else if !p.warm {
		begins, _ := p.Begins()
		from = max(from, p.over, begins)
	}
	age := max(0, w.Start()-from)
	if age >= span {
		return share
	}
	return max(1, int64(float64(share)*(float64(span)+(coldest-1)*float64(age))/(coldest*float64(span))))
}

// Reason returns the reason for the bounds at the instant now: the first that is not
// ReasonShare, if there is one.
func (p *Planner) Reason(now int64) Reason { return p.reason(now, p.frozenAt()) }

// reason is Reason by a bound on the lookback.
func (p *Planner) reason(now, frozen int64) Reason {
	reason := ReasonNoPolicy
	for _, length := range p.Lengths(now, p.offset) {
		if reason = p.History.Bound(quota.WindowAt(length, now+p.offset), now, p.offset, frozen).Reason; reason != ReasonShare {
			break
		}
	}
	return reason
}

// Began returns the monotonic instant at which the running history began, and whether this instance
// had one before.
func (p *Planner) Began() (mono int64, again bool) { return p.since, p.again }

// Registered reports whether the newest view has this instance.
func (p *Planner) Registered() bool { return p.members[p.self] != nil }

// Begins returns when this instance has a share if there is no more news, in corrected wall time: with
// the first window of each limit that all views of its lookback give a part of; under other shapes once
// no earlier window is in reach. ok is false if time alone does not bring one.
func (p *Planner) Begins() (wall int64, ok bool) { return p.BeginsOf(Key{}) }

// BeginsOf is Begins of the limits of a key. The provider is the key with the empty name. A key that has owners begins for
// a new one when no view counts any more in which the key was another's.
func (p *Planner) BeginsOf(key Key) (wall int64, ok bool) {
	wall, _, _ = p.begins(key)
	return wall, wall != 0
}

// NewWindow returns the limit whose window this instance waits for, if a change of the policy brought windows of that
// length when it had waited out its join. ok is false if it waits for something else.
func (p *Planner) NewWindow() (l quota.Limit, ok bool) {
	_, due, l := p.begins(Key{})
	for _, t := range slices.Backward(p.terms) {
		if !slices.Contains(t.lengths, l.Window) {
			return l, l.Window != 0 && !protocol.Free(l) && t.policy != nil && add(t.end, p.offset) >= due
		}
	}
	return l, false
}

// begins is BeginsOf, with the instant from which windows may start that all views of their lookback give a part of, and
// the limit whose window begins last. All are zero if time alone does not bring a share.
func (p *Planner) begins(key Key) (wall, due int64, last quota.Limit) {
	of := func(t *terms) *terms {
		if key.Name == "" {
			return t
		}
		return new(keyTerms).of(t, key.Name)
	}
	newest, self := of(p.newest()), p.members[p.self]
	if newest.policy == nil || newest.blocked != ReasonShare || self == nil {
		return 0, 0, last
	}
	due = self.from
	if from := newest.policy.From; !from.IsZero() {
		due = max(due, from.UnixNano())
	}
	for _, t := range p.terms {
		begins := p.since
		if of(t.terms).policy == nil {
			begins = t.end
		} else if p.First() {
			continue
		}
		due = max(due, add(add(begins, int64(t.rules.Settle)), p.offset))
	}
	if newest.owners > 0 {
		owned, ok := p.owned(key, newest)
		if !ok {
			return 0, 0, last
		}
		due = max(due, owned)
	}
	straight := add(p.straight(), p.offset)
	for _, l := range protocol.LimitsAt(newest.policy, due) {
		from := max(due, add(p.opens(l.Window), p.offset))
		w := quota.WindowAt(l.Window, from)
		begins := w.Start()
		if begins < from {
			begins = w.End()
		}
		if key.Name == "" { // keys are counted by fixed windows
			begins = max(begins, min(add(begins, p.reach(l.Window)), straight))
		}
		if begins > wall {
			wall, last = begins, l
		}
	}
	return wall, due, last
}

// State returns the state of a limiter at the instant at. It depends on time alone
// once the views and the proof are given.
func (p *Planner) State(at clock.Instant) quota.State {
	policy, _ := p.Policy()
	if policy == nil {
		return quota.StateJoining
	}
	if policy.Mode == quota.ModePause {
		return quota.StatePaused
	}
	rules, frozen, silent := p.Rules(at.Mono), NotFrozen, p.Silent(at)
	if silent { // as Plan decides it next
		frozen = p.proof.Mono - int64(rules.Settle)
	}
	share := p.reason(at.Mono, frozen) == ReasonShare
	if silent && (share || rules.Outage == quota.OutageStop) {
		return quota.StateStale // under the rule hold an instance without a share has none to hold
	}
	if at.Mono < p.paused && policy.Mode != quota.ModeShadow { // there calls pass
		return quota.StatePausing
	}
	if !p.proved || !share {
		return quota.StateJoining
	}
	return quota.StateActive
}
