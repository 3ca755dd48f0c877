package share

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Unbounded is the bound of a window that no limit binds.
const Unbounded = int64(math.MaxInt64)

// NotFrozen is the value of frozen for Bound while the instance is fresh.
const NotFrozen = int64(math.MaxInt64)

// Reason is the reason for a bound.
type Reason uint8

// The reasons.
const (
	// ReasonShare: the bound is this instance's share of the total, or there
	// is no limit of this window length.
	ReasonShare Reason = iota
	// ReasonJoining: the history is too short yet, or some view of the
	// lookback does not have this instance take part.
	ReasonJoining
	// ReasonNoPolicy: no policy is set, or none is in force yet.
	ReasonNoPolicy
	// ReasonPaused: the policy's mode is pause.
	ReasonPaused
	// ReasonUnsupported: the policy needs a feature that this version lacks, or
	// its times break the timing rule (quota.Policy.Unsupported).
	ReasonUnsupported
	// ReasonLeft: the window starts at or after this instance's own end.
	ReasonLeft
)

// terms are a view's policy, read once. They never change.
type terms struct {
	policy   *quota.Policy // nil where the view has none
	revision int64         // at which policy was written

	rules   quota.Policy // policy with its defaults; without one the defaults, and no shape
	blocked Reason
	zone    *time.Location  // of the budgets
	lengths []time.Duration // of its windows, those that are announced included; sorted
	short   bool            // protocol.LimitsShort
	keys    *terms          // of each key without an override; nil in these themselves
	// overrides are the limits of single keys, nil if there are none.
	overrides *overrides
	owners    int64 // of each key; 0: all participants have equal shares
}

func newTerms(p *quota.Policy, revision int64) *terms {
	t := termsOf(p, revision)
	if t.keys = termsOf(protocol.OfKeys(p), revision); t.keys.policy != nil {
		t.keys.blocked = t.blocked
		t.keys.owners = max(0, t.rules.Keys.Owners) // etcd may hold anything
	}
	return t
}

func termsOf(p *quota.Policy, revision int64) *terms {
	t := &terms{policy: p, revision: revision}
	if p == nil {
		t.rules, t.blocked = quota.Policy{}.WithDefaults(), ReasonNoPolicy
		t.rules.Shape = ""
		return t
	}
	t.rules = p.WithDefaults()
	t.short = protocol.LimitsShort(&t.rules)
	if t.zone, _ = time.LoadLocation(p.Zone); t.zone == nil {
		t.zone = time.UTC // it was validated
	}
	for _, limits := range append([]quota.LimitChange{{Limits: protocol.Short(&t.rules)}}, p.Next...) {
		for _, l := range limits.Limits {
			t.lengths = append(t.lengths, l.Window)
		}
	}
	slices.Sort(t.lengths)
	t.lengths = slices.Compact(t.lengths)
	switch {
	case len(p.Unsupported()) > 0:
		t.blocked = ReasonUnsupported
	case p.Mode == quota.ModePause:
		t.blocked = ReasonPaused
	}
	return t
}

// allotment is the permits that the terms give to all participants of one window.
type allotment struct {
	limited bool   // a limit of the window's length binds
	total   int64  // the policy's limit
	reason  Reason // ReasonShare, or why there are none
}

// at returns the terms of window w.
func (t *terms) at(w quota.Window) allotment {
	if t.policy == nil {
		return allotment{reason: ReasonNoPolicy}
	}
	total, limited, inForce := protocol.PermitsFor(t.policy, w)
	if !inForce {
		// A policy that comes into force within the window gives nothing of it.
		// It binds all the same: the policy's shorter windows begin sooner, and
		// would be the only ones to count.
		from := t.policy.From
		_, limited = protocol.LimitOf(protocol.LimitsAt(t.policy, from.UnixNano()), w.Length)
		return allotment{limited: limited && from.Before(time.Unix(0, w.End())), reason: ReasonNoPolicy}
	}
	return allotment{limited: limited, total: max(0, total), reason: t.blocked}
}

// later returns the most that is in force for windows of a length as long as there is no news: the
// limits that are announced count. It is Unbounded if one of them does not limit such windows.
func (t *terms) later(length time.Duration, wall int64) (most int64) {
	if t.blocked != ReasonShare {
		return 0
	}
	all := append([]quota.LimitChange{{Limits: protocol.Short(t.policy)}}, t.policy.Next...)
	for i, limits := range all {
		if i+1 < len(all) && all[i+1].From.UnixNano() <= wall { // the next ones are in force already
			continue
		}
		total, ok := protocol.LimitOf(limits.Limits, length)
		if !ok {
			return Unbounded
		}
		most = max(most, total)
	}
	return most
}

// change returns the terms after a change: t, if neither the policy nor the limits of single keys
// are others.
func (t *terms) change(c *protocol.Change) *terms {
	n, o := t.changeOfAll(c), t.overrides.with(c.Overrides)
	if n != t {
		n.overrides = o
	} else if o != t.overrides {
		other := *t // with the same keys
		n, other.overrides = &other, o
	}
	return n
}

func (t *terms) changeOfAll(c *protocol.Change) *terms {
	if c.Policy == nil && !c.PolicyDeleted {
		return t
	}
	return newTerms(c.Policy, c.Revision)
}
