package window

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// joiner is a guest that asked before it has a share of its own. Callers who wait take a
// window at its edge, before an ask can come; so the joiner's part is lent there first.
type joiner struct {
	guest string
	from  int64 // corrected wall time from which it has a share
	poor  int64 // what it was lent in the window of its latest ask, and lacked yet
}

// joinerWindows bounds the windows that a joiner is lent a part of without another ask: its
// callers may have gone. One that has enough by its part asks no more.
const joinerWindows = 4

// noteJoinerLocked keeps a joiner that asks in window w, in place of its earlier ask, if another
// window begins before it has a share.
func (g *Gate) noteJoinerLocked(j joiner, w quota.Window) {
	b, next := &g.mu.borrower, w.End()
	j.from = min(j.from, next+joinerWindows*int64(w.Length))
	b.joiners = slices.DeleteFunc(b.joiners, func(o joiner) bool { return o.guest == j.guest })
	j.poor += b.partners.guests[j.guest]
	if j.from > next && len(b.joiners) < mostStanding {
		b.joiners = append(b.joiners, j)
	}
}

// lendToJoinersLocked lends to each joiner, at the beginning of a window, the part of the own
// share that the joiner will have, or what it needed if that was less. It returns whether
// it lent any.
func (g *Gate) lendToJoinersLocked() (lent bool) {
	b, l := &g.mu.borrower, &g.mu.ledger
	s, ok := g.sceneLocked()
	if !ok || !l.plan.Lending.Lends || s.window == b.joined {
		return false
	}
	b.joined = s.window
	b.joiners = slices.DeleteFunc(b.joiners, func(j joiner) bool {
		return j.from <= s.window.Start() || !g.Lends(j.guest, g.mu.last)
	})
	for _, j := range b.joiners {
		kept, _ := l.kept()
		if n := min(j.poor, g.partLocked(s, j.guest), l.budget()-kept); n > 0 {
			g.lendOutLocked(j.guest, n)
			lent = true
		}
	}
	return lent
}

// partLocked returns what a guest without a share may have of this instance's, besides what it
// was lent in this window: the part that it will have when it has a share.
func (g *Gate) partLocked(s scene, guest string) int64 {
	chance := lending.Chance(guest, g.mu.ledger.plan.Lending.Hash^uint64(s.window.Index))
	return max(0, lending.Part(s.bound-s.lent, s.instances, chance)-g.mu.borrower.partners.guests[guest])
}
