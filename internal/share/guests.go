package share

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/quota"
)

// lending returns what this instance may lend and borrow at the instant now, by the offset of
// the latest Plan, where anything is lent: the windows and their shape decide that, the provider's (plans.Plan.Lendable) and
// those of keys. Nothing depends on the instances' agreement.
func (p *Planner) lending(now int64, policy *quota.Policy) (l plans.Lending) {
	l = plans.Lending{Self: p.self, Hash: p.phase, Instances: len(p.members)}
	me := p.members[p.self]
	if !p.Lends || policy == nil || me == nil || !protocol.Lends(policy) {
		return l
	}
	l.Lends, l.Cut = !p.stale, p.stale && l.Instances > 1
	l.Borrows = l.Lends && now+p.offset < min(p.until, me.until) // it may be gone before a loan comes
	return l
}

// Borrows reports whether this instance may borrow permits of the provider, as of the latest Plan.
func (p *Planner) Borrows() bool { return p.borrows }

// Cut reports whether nothing of the provider is lent only because etcd does not answer, as of the latest Plan.
func (p *Planner) Cut() bool { return p.cut }

// Lent reports whether another instance may lend to this one at the instant mono: one that has a share.
func (p *Planner) Lent(mono int64) bool {
	for _, m := range p.members {
		if m.id != p.self && m.takesPart(mono+p.offset) {
			return p.borrows
		}
	}
	return false
}

// LendsTo reports whether this instance lends to another one at the instant mono: not after the
// end that the other one has announced. from is the
// corrected wall time from which the other one has a share.
func (p *Planner) LendsTo(guest string, mono int64) (from int64, lends bool) {
	policy, _ := p.Policy()
	m := p.members[guest]
	if policy == nil || m == nil || guest == p.self || m.until <= mono+p.offset || !protocol.Lends(policy) {
		return 0, false
	}
	return m.from, true
}

// Peers returns the other instances that may lend at the instant mono, in no order: those that
// take part, and newcomers that owe permits, which may have more than they use.
func (p *Planner) Peers(mono int64, debtors []lending.Debtor) []lending.Peer {
	all, wall := make([]lending.Peer, 0, len(p.members)), mono+p.offset
	for _, m := range p.members {
		owes := m.from > wall && wall < m.until && slices.ContainsFunc(debtors, func(d lending.Debtor) bool { return d.ID == m.id })
		if m.id != p.self && (owes || m.takesPart(wall)) {
			all = append(all, lending.Peer{ID: m.id, Hash: m.hash})
		}
	}
	return all
}
