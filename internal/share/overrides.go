package share

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Key is a key whose shares are asked for: its name, and the part of that in its ranks. The provider is the one
// with the empty name.
type Key struct {
	Name string
	Hash uint64
}

// KeyOf returns the key with a name.
func KeyOf(name string) Key { return Key{name, hashID(name)} }

// overrides are the limits of single keys by a view. They never change.
type overrides struct {
	buckets [protocol.OverrideBuckets]*bucket // nil: there are none
	lengths []time.Duration                   // of all their windows; sorted
}

type bucket struct {
	*protocol.Overrides
	lengths []time.Duration
}

// with returns the overrides after documents were put, or deleted if they are nil. The
// receiver may be nil.
func (o *overrides) with(documents map[int]*protocol.Overrides) *overrides {
	if len(documents) == 0 {
		return o
	}
	n := new(overrides)
	if o != nil {
		n.buckets = o.buckets
	}
	for number, d := range documents {
		if n.buckets[number] = nil; d == nil {
			continue
		}
		b := &bucket{Overrides: d}
		for _, one := range d.Keys {
			of := quota.Policy{Limits: one.Limits}
			b.lengths = withLengths(withLengths(b.lengths, protocol.Short(&of)), protocol.Long(&of))
		}
		n.buckets[number] = b
	}
	for _, b := range n.buckets {
		if b != nil {
			n.lengths = append(n.lengths, b.lengths...)
		}
	}
	slices.Sort(n.lengths)
	n.lengths = slices.Compact(n.lengths)
	return n
}

// withLengths adds the lengths of the limits' windows that are not there.
func withLengths(lengths []time.Duration, limits []quota.Limit) []time.Duration {
	for _, l := range limits {
		if !slices.Contains(lengths, l.Window) {
			lengths = append(lengths, l.Window)
		}
	}
	return lengths
}

// of returns the override of a key, nil if it has none. broken says that this is not known.
func (o *overrides) of(key string) (own *protocol.Override, broken bool) {
	if o == nil {
		return nil, false
	}
	b := o.buckets[protocol.OverrideBucket(key)]
	if b == nil {
		return nil, false
	}
	return b.Keys[key], b.Broken
}

// windows are the lengths of all their windows. The receiver may be nil.
func (o *overrides) windows() []time.Duration {
	if o == nil {
		return nil
	}
	return slices.Clip(o.lengths) // they are appended to
}

// changed returns how many documents differ.
func (o *overrides) changed(from *overrides) (n int) {
	if o == from || o == nil || from == nil {
		return 1
	}
	for i := range o.buckets {
		if o.buckets[i] != from.buckets[i] {
			n++
		}
	}
	return n
}

// keyTerms are the terms of one key, made of those of all keys and of its override. They are
// the same as long as both say the same.
type keyTerms struct {
	all      *terms
	override *protocol.Override
	broken   bool
	own      *terms
}

// of returns the terms of a key by a view's.
func (k *keyTerms) of(view *terms, key string) *terms {
	override, broken := view.overrides.of(key)
	if view.keys.policy == nil || override == nil && !broken {
		return view.keys
	}
	if k.own == nil || k.all != view.keys || k.broken != broken || !k.override.Equal(override) {
		*k = keyTerms{view.keys, override, broken, view.keys.with(override, broken)}
	}
	return k.own
}

// with returns the terms of a key with an override; without permits if that is not known.
func (t *terms) with(o *protocol.Override, unknown bool) *terms {
	n := *t
	if unknown {
		n.blocked = ReasonUnsupported
		return &n
	}
	policy := *t.policy
	policy.Limits = protocol.WithPhases(o.Limits, t.policy.Limits)
	n.policy, n.rules.Limits, n.lengths = &policy, policy.Limits, withLengths(nil, protocol.Short(&policy))
	n.owners = o.In(quota.Keys{Owners: t.owners}).Owners
	return &n
}
