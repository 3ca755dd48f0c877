package share

import (
	"cmp"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/quota"
)

// A key's share is a function of the view, the instance, the key and the window, and the
// shares sum to the key's limit. So the proof for a provider holds for each key.
//
// Divided equally, it is that of a provider with the key's limits, but for the ranks, by
// which the remainder is dealt: they are another order for each key. If keys have owners, the
// ranks do not depend on the window. The instances that rank highest of those that take
// part are the owners, and divide the limit equally among them.
//
// Instances that ranked differently would hand out a permit of the key twice, so this too
// must never change within one major version:
//
//	equal: rank(id, key, w) = mix(fnv1a64(id) XOR mix(seed(w) XOR fnv1a64(key)))
//	owner: rank(id, key) = mix(fnv1a64(id) XOR mix(fnv1a64(key)))
//
// with seed(w) as under fixed windows in a provider's rank.

// of returns the terms that the cache reads of a view's.
func (t *boundCache) of(of *terms) *terms {
	if t.key != nil {
		return t.keyTerms.of(of, t.key.Name)
	}
	return of
}

// hash is nil for the provider.
func (k *Key) hash() *uint64 {
	if k == nil {
		return nil
	}
	return &k.Hash
}

// seedFor returns the seed of ranks for a key by these terms; nil is the provider.
func (t *terms) seedFor(key *uint64, w quota.Window) uint64 {
	switch {
	case key == nil:
		return t.seed(w)
	case t.owners > 0:
		return protocol.Mix(*key)
	}
	return protocol.Mix(seedOf(w) ^ *key)
}

// owns reports how many of n participants have shares: the first in the order of ranks.
func (t *terms) owns(n int64) int64 {
	if t.owners == 0 {
		return n
	}
	return min(n, t.owners)
}

// OfKey is Of for a key.
func OfKey(v *protocol.View, key string, w quota.Window) (total int64, shares map[string]int64, ok bool) {
	of, k := newTerms(v.Policy, v.PolicyRevision), KeyOf(key)
	of.overrides = of.overrides.with(v.Overrides)
	t := new(keyTerms).of(of, key)
	return t.of(v, w, t.seedFor(&k.Hash, w))
}

// KeyOwner returns the name of an owner of a key by the newest view at the monotonic instant
// now, and whether it is another instance. It is this one, if that is an owner, and else the
// owner of the highest rank. An instance without a name has its ID for one. The name is empty
// if the key has no owners, or nobody takes part.
func (p *Planner) KeyOwner(key Key, now int64) (name string, elsewhere bool) {
	owners := p.ownersOf(key, now+p.offset)
	if len(owners) == 0 {
		return "", false
	}
	owner := p.members[owners[0]]
	if slices.Contains(owners, p.self) {
		owner = p.members[p.self]
	}
	return cmp.Or(owner.name, owner.id), owner.id != p.self
}

// KeyTotal returns the limit of a key for window w by the newest view that has one; limited is false if none has.
func (p *Planner) KeyTotal(key Key, w quota.Window) (total int64, limited bool) {
	var of keyTerms
	for _, t := range slices.Backward(p.terms) {
		if d := of.of(t.terms, key.Name).at(w); d.limited {
			return d.total, true
		}
	}
	return 0, false
}

// owned returns from when on windows of a key with owners may start that no view in which this instance had nothing of it
// binds, in corrected wall time; 0 if none binds now. ok is false if time alone brings nothing: the key is another's, or
// etcd does not answer. t are the key's terms. Ranks of owners are the same in all windows.
func (p *Planner) owned(key Key, t *terms) (wall int64, ok bool) {
	limits := protocol.LimitsAt(t.policy, p.over)
	if len(limits) == 0 || p.stale {
		return 0, !p.stale
	}
	now := sub(p.over, p.offset)
	settle := int64(p.Rules(now).Settle)
	c := p.begin(quota.WindowAt(limits[0].Window, p.over), p.changes-int64(len(p.log)-p.older(sub(now, settle))), &key)
	if p.extend(c); c.without > 0 {
		wall = add(add(p.change(c.without).at, settle), p.offset) + 1 // a window that starts at the instant itself looks back to the view
	}
	return wall, c.newest.Permits > 0
}

// Blocked reports whether a limit of a key is 0 at the corrected wall time wall by the newest view, so that only another
// limit brings permits. The provider is the key with the empty name.
func (p *Planner) Blocked(key Key, wall int64) bool {
	t := p.newest()
	if key.Name != "" {
		t = new(keyTerms).of(t, key.Name)
	}
	return t != nil && t.policy != nil && slices.ContainsFunc(protocol.LimitsAt(t.policy, wall), func(l quota.Limit) bool { return l.Permits == 0 })
}

// Removed reports whether the newest view has no limit in force of a length at the monotonic instant now, for a key or for
// the provider, which is the key with the empty name. If the limit binds all the same, an earlier view has it.
func (p *Planner) Removed(key Key, length time.Duration, now int64) bool {
	t := p.newest()
	if key.Name != "" {
		t = new(keyTerms).of(t, key.Name)
	}
	if t == nil || t.policy == nil {
		return false
	}
	limits := protocol.LimitsAt(t.policy, add(now, p.offset))
	_, limited := protocol.LimitOf(limits, length)
	return limits != nil && !limited
}

// KeyFleet is what n instances have together of a key in a window.
func (p *Planner) KeyFleet(key Key, w quota.Window, n int) plans.Fleet {
	total, _ := p.KeyTotal(key, w)
	f := plans.Fleet{Total: total, Instances: n, Owners: n}
	if t := new(keyTerms).of(p.newest(), key.Name); t != nil {
		f.Owners = int(t.owns(int64(n)))
	}
	return f
}

// keyWindows returns the windows that run at the instant now and in which keys are counted,
// shortest first: those whose length some view that counts for them has for keys. So instances
// count keys in the same windows, whatever else they have seen: loans need that.
func (p *Planner) keyWindows(now int64) (all []quota.Window) {
	for i := range slices.Backward(p.terms) {
		t := &p.terms[i]
		if t.keys.policy == nil {
			continue
		}
		for _, length := range slices.Concat(t.keys.lengths, t.overrides.windows()) {
			w := quota.WindowAt(length, now+p.offset)
			if length <= quota.MaxWindow && !slices.Contains(all, w) && t.end >= min(p.lookback(w, now, p.offset), p.frozenAt()) {
				all = append(all, w)
			}
		}
	}
	slices.SortFunc(all, func(a, b quota.Window) int { return cmp.Compare(a.Length, b.Length) })
	return all
}

// keyBudgets returns the windows at the corrected wall time wall of the long limits that a key
// may have by the newest view, without their permits.
func (p *Planner) keyBudgets(wall int64) (all []protocol.Budget) {
	t := p.newest()
	for _, length := range withLengths(t.overrides.windows(), protocol.Long(t.keys.policy)) {
		if length > quota.MaxWindow {
			l := protocol.WithPhases([]quota.Limit{{Window: length}}, t.keys.policy.Limits)[0]
			all = append(all, protocol.BudgetAt(l, t.keys.zone, wall))
		}
	}
	return all
}

// KeyBudgets returns the long limits of a key by the newest view, with the windows that run by
// the latest Plan at the monotonic instant now.
func (p *Planner) KeyBudgets(key Key, now int64) (all []protocol.Budget) {
	t := new(keyTerms).of(p.newest(), key.Name)
	if t == nil || t.policy == nil {
		return nil
	}
	for _, l := range protocol.Long(t.policy) {
		b := protocol.BudgetAt(l, t.zone, now+p.offset)
		b.Whole = p.alone
		all = append(all, b)
	}
	return all
}

// KeyPeers returns the other instances that may lend permits of a key at the monotonic instant now, in
// no order: its owners, or Peers if the key has none. Each key has them by other hashes.
func (p *Planner) KeyPeers(key Key, now int64, debtors []lending.Debtor) (all []lending.Peer) {
	t := p.newest()
	switch {
	case t.keys == nil:
		return nil
	case new(keyTerms).of(t, key.Name).owners == 0:
		all = p.Peers(now, debtors)
	default:
		for _, id := range p.ownersOf(key, now+p.offset) {
			if id != p.self {
				all = append(all, lending.Peer{ID: id, Hash: p.members[id].hash})
			}
		}
	}
	for i := range all {
		all[i].Hash ^= key.Hash
	}
	return all
}

// ownersOf returns the owners of a key by the newest view, highest rank first; none if it has no
// owners.
func (p *Planner) ownersOf(key Key, wall int64) (ids []string) {
	all := p.newest()
	if all.keys == nil {
		return nil
	}
	t := new(keyTerms).of(all, key.Name)
	if t.owners == 0 {
		return nil
	}
	m, seed := int(t.owners), t.seedFor(&key.Hash, quota.Window{}) // the same in all windows
	var owners []part
	for i := range p.rows {
		if r := &p.rows[i]; r.takesPart(wall) {
			one := part{r.id, orderOf(r.hash, seed)}
			at, _ := slices.BinarySearchFunc(owners, one, func(a, b part) int { return a.ranks(&b) })
			if at < m {
				owners = slices.Insert(owners, at, one)
				owners = owners[:min(m, len(owners))]
			}
		}
	}
	for i := range owners {
		ids = append(ids, owners[i].id)
	}
	return ids
}

// keys returns which windows bind keys at the corrected wall time wall; nil if keys have no
// limits by the newest view. The plan is told when each window runs, and answers whether that is
// within a guard.
func (p *Planner) keys(wall int64, r Rules, l plans.Lending, runs func(start, end, guard int64) (shut bool)) *plans.Keys {
	policy, _ := p.Policy()
	if policy == nil || len(policy.Keys.Limits) == 0 {
		return nil
	}
	k := &plans.Keys{Most: policy.Keys.Most, Windows: plans.Windows{
		Running: p.keyWindows(wall - p.offset), Budgets: p.keyBudgets(wall), Offset: p.offset, Guard: int64(r.Edges), Over: max(p.over, wall), Lending: l,
	}}
	shut := func(start, end, guard int64) {
		// A window that is over may be forgotten, so it must not come back.
		k.Shut = runs(start, end, guard) || k.Shut || end <= p.over
	}
	for _, w := range k.Running {
		shut(w.Start(), w.End(), k.Guard)
	}
	for i := range k.Budgets {
		b := &k.Budgets[i]
		shut(b.Start, b.End, b.GuardOf(r.Guard))
	}
	may := k.Running[0].Length >= protocol.MinLending && policy.Mode != quota.ModeShadow
	k.Lending.Lends, k.Lending.Borrows, k.Lending.Cut = may && l.Lends, may && l.Borrows && l.Instances > 1, may && l.Cut
	return k
}

// keyed is what a planner knows of keys as of the latest Plan.
type keyed struct {
	windows *plans.Keys
	basis   keyBasis
}

// keyBasis is all that decides the bounds of keys, beside the windows.
type keyBasis struct {
	revision, began, since, until int64
	offset, frozen                int64
}

// keep returns the keys' windows of the plan before, if k is the same: then all bounds are.
func (p *Planner) keep(k *plans.Keys) *plans.Keys {
	was := &p.keyed
	if k == nil {
		return nil
	}
	basis := keyBasis{p.revision, p.began, p.since, p.until, p.offset, p.frozenAt()}
	if o := was.windows; o != nil && basis == was.basis && slices.Equal(o.Running, k.Running) && slices.Equal(o.Budgets, k.Budgets) && o.Shut == k.Shut && o.Guard == k.Guard && o.Lending == k.Lending {
		return o
	}
	was.windows, was.basis = k, basis
	return k
}
