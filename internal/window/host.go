package window

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what the gate does as a host: by its Trade it lends to guests that ask. At a window's edge callers
// who wait take all of it before an ask can come. So the gate first lends there to guests that have asked: see asks.

// Asked lends permits of the provider to a guest that asks in the windows that run, and returns how many. It
// may lend the rest later in the window.
func (g *Gate) Asked(at clock.Instant, guest string, windows []quota.Window, n protocol.Need) int64 {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	s, ok := g.sceneLocked()
	from, lends := g.LendsTo(guest, g.mu.last.Mono)
	l := &g.mu.ledger
	hash := l.plan.Lending.Hash
	if !ok || !lends || !l.lends() || !slices.Equal(windows, l.windows.Running) || n.Part > 0 && !n.Has(hash) {
		return 0
	}
	return g.lendLocked(at, s, s.asked(guest, n, from))
}

// lendLocked lends to a guest as much as the rules say, and returns how much that is. For the rest the ask stays open,
// or the guest asks again by itself: see Trade.keepRest.
func (g *Gate) lendLocked(at clock.Instant, s scene, a asked) int64 {
	b, l := &g.mu.borrower, &g.mu.ledger
	g.noteCallsLocked(g.mu.last.Mono)
	kept, left := g.segment.Load().floor, l.leftOfShares
	if a.large { // a burst, whenever it comes
		left = l.unpaced
	}
	n := b.lend(&s, stock{left: left() - g.takenLocked(), kept: kept, issued: b.ownIssued(&s, g.takenLocked()), due: s.own()}, g.callersLocked(), &a)
	if n > 0 {
		g.settleLocked() // callers may have taken more meanwhile
		if n = min(n, left()-kept); n > 0 {
			g.lendOutLocked(a.guest, n)
		}
		g.rebuildLocked(at)
	}
	n = max(0, n)
	if b.keepRest(&s, a, n) {
		g.armLocked(s.releases())
	}
	return n
}

// lendOutLocked lends n permits of those that may be issued, and tells the guest.
func (g *Gate) lendOutLocked(guest string, n int64) {
	l := &g.mu.ledger
	g.Lent(l.plan.Lending.Self, guest, l.lend(guest, n))
	g.mu.borrower.Lent += n
}

// lendsToLocked reports whether anything is lent to a guest: one that has left uses no permits.
func (g *Gate) lendsToLocked(guest string) bool {
	_, lends := g.LendsTo(guest, g.mu.last.Mono)
	return lends
}

// lendAtEdgeLocked lends to guests that have asked, at the beginning of a window. It returns whether it
// lent any.
func (g *Gate) lendAtEdgeLocked() (lent bool) {
	b, l := &g.mu.borrower, &g.mu.ledger
	if !b.edge || !l.lends() { // as with nearly each permit that comes back
		return false
	}
	s, ok := g.sceneLocked()
	if !ok {
		return false
	}
	b.lendAtEdge(&s, g.callersLocked(), g.lendsToLocked,
		func() (n, kept int64) {
			kept, _ = l.kept()
			return l.unpaced(), kept // the guest paces what it is lent
		},
		func(guest string, n int64) {
			g.lendOutLocked(guest, n)
			lent = true
		})
	return lent
}
