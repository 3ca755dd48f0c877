package share

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// A key's share is a function of the view, the instance, the key and the window. It is that
// of a provider with the key's limits and the equal division, but for the ranks, by which
// the remainder is dealt: they are another order for each key. So the proof for a provider
// holds for each key. Instances that ranked differently would hand out a permit of the key
// twice, so this too must never change within one major version:
//
//	rank(id, key, w) = mix(fnv1a64(id) XOR mix(seed(w) XOR fnv1a64(key)))
//
// with seed(w) as under fixed windows in a provider's rank.

// HashKey is the part of a key's name in its ranks.
func HashKey(name string) uint64 { return hashID(name) }

// of returns the terms that the cache reads of a view's.
func (t *boundCache) of(of *terms) *terms {
	if t.key != nil {
		return of.keys
	}
	return of
}

func (t *boundCache) seed(by *terms, w quota.Window) uint64 {
	if t.key != nil {
		return seedOfKey(*t.key, w)
	}
	return by.seed(w)
}

func seedOfKey(key uint64, w quota.Window) uint64 { return mix(seedOf(w) ^ key) }

// OfKey is Of for a key.
func OfKey(v *protocol.View, key string, w quota.Window) (total int64, shares map[string]int64, ok bool) {
	return newTerms(v.Policy, v.PolicyRevision, nil).keys.of(v, w, seedOfKey(HashKey(key), w))
}

// KeyBound returns how many permits of window w this instance may have issued for a key,
// given by HashKey, as of the latest Plan. The answer is not kept, and takes O(instances
// and changes since the settle time).
func (p *Planner) KeyBound(key uint64, w quota.Window, now int64) Bound {
	return p.boundBy(func(w quota.Window, low int64) *boundCache {
		t := p.begin(w, low, &key)
		p.extend(t)
		return t
	}, w, now, p.offset, p.frozenAt())
}

// KeyTotal returns the limit of a key for window w by the newest view, 0 if there is none.
func (p *Planner) KeyTotal(w quota.Window) int64 { return p.newest().keys.at(w).total }

// keyLengths returns the lengths of all windows that may bind keys, shortest first.
func (h *History) keyLengths() (lengths []time.Duration) {
	for i := range h.terms {
		lengths = append(lengths, h.terms[i].keys.lengths...)
	}
	slices.Sort(lengths)
	return slices.Compact(lengths)
}

// keys returns which windows bind keys at the corrected wall time wall; nil if keys have no
// limits by the newest view. It calls ends with the edges of the windows.
func (p *Planner) keys(wall, guard int64, ends func(wall int64)) *window.Keys {
	policy, _ := p.Policy()
	if policy == nil || len(policy.Keys.Limits) == 0 {
		return nil
	}
	k := &window.Keys{Most: policy.Keys.Most, Offset: p.offset, Guard: guard}
	for _, length := range p.keyLengths() {
		w := quota.WindowAt(length, wall)
		ends(w.Start() + guard)
		ends(w.End() - guard)
		ends(w.End())
		// A window that is over may be forgotten, so it must not come back.
		k.Shut = k.Shut || wall < w.Start()+guard || wall >= w.End()-guard || w.End() <= p.keyed.over
		k.Windows = append(k.Windows, w)
	}
	return k
}

// keyed is what a planner knows of keys as of the latest Plan.
type keyed struct {
	windows *window.Keys
	basis   keyBasis
	over    int64 // the latest corrected wall time that was reached
}

// keyBasis is all that decides the bounds of keys, beside the windows.
type keyBasis struct {
	revision, resumed, since, until int64
	offset, frozen                  int64
}

// keep returns the keys' windows of the plan before, if k is the same: then all bounds are.
func (p *Planner) keep(k *window.Keys, wall int64) *window.Keys {
	was := &p.keyed
	was.over = max(was.over, wall)
	if k == nil {
		return nil
	}
	k.Over = was.over
	basis := keyBasis{p.revision, p.resumed, p.since, p.until, p.offset, p.frozenAt()}
	if o := was.windows; o != nil && basis == was.basis && slices.Equal(o.Windows, k.Windows) && o.Shut == k.Shut && o.Guard == k.Guard {
		return o
	}
	was.windows, was.basis = k, basis
	return k
}
