package window

import (
	"cmp"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is what the gate does as a host: by its Trade it lends to guests that ask. Callers who wait take
// a window at its edge, before an ask can come. So guests that have asked are lent some there first: see asks.

// Asked lends permits of the provider to a guest that asks in the windows that run, and returns how many. It
// may lend the rest later in the window.
func (g *Gate) Asked(at clock.Instant, guest string, windows []quota.Window, n protocol.Need) int64 {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	s, ok := g.sceneLocked()
	from, lends := g.LendsTo(guest, g.mu.last)
	l := &g.mu.ledger
	hash := l.plan.Lending.Hash
	if !ok || !lends || !l.lends() || !slices.Equal(windows, l.windows.Running) || n.Part > 0 && !n.Has(hash) {
		return 0
	}
	return g.lendLocked(at, s, s.asked(guest, n, from))
}

// lendLocked lends to a guest as much as the rules say. The rest stands, or the guest asks again
// by itself.
func (g *Gate) lendLocked(at clock.Instant, s scene, a asked) int64 {
	b, l := &g.mu.borrower, &g.mu.ledger
	g.noteCallsLocked(g.mu.last)
	kept := g.segment.Load().floor
	n := b.lend(&s, stock{left: l.shares() - g.takenLocked(), kept: kept, issued: g.smallIssuedLocked(s), due: s.own()}, g.callersLocked(), &a)
	if n > 0 {
		g.settleLocked() // callers may have taken more meanwhile
		if n = min(n, l.shares()-kept); n > 0 {
			g.lendOutLocked(a.guest, n)
		}
		g.rebuildLocked(at)
	}
	n = max(0, n)
	if a.permits -= n; n > 0 && a.poor > 0 {
		a.permits = 0
	}
	a.critical = max(0, a.critical-n)
	if b.guests.keep(a, s.window); a.permits > 0 {
		g.armLocked(g.releasesLocked(s))
	}
	return n
}

// lendOutLocked lends n permits of those that may be issued, and tells the guest.
func (g *Gate) lendOutLocked(guest string, n int64) {
	l := &g.mu.ledger
	g.Lent(l.plan.Lending.Self, guest, l.lend(guest, n))
	g.mu.borrower.Lent += n
}

// releasesLocked returns when asks that stand are served next; Forever if they are not.
func (g *Gate) releasesLocked(s scene) int64 {
	if at, ok := lending.Releases(s.phase, s.length); ok {
		return s.window.Start() + int64(at*milli) - g.mu.ledger.plan.Offset
	}
	return Forever
}

// serveAskedLocked serves two of the asks that stand, by chance, when reserves are released.
// It returns when to look again.
func (g *Gate) serveAskedLocked(at clock.Instant, s scene) (next int64) {
	b := &g.mu.borrower
	stand := slices.DeleteFunc(slices.Clone(b.guests), func(a asked) bool {
		_, lends := g.LendsTo(a.guest, g.mu.last) // a guest that has left uses no permits
		return a.permits == 0 || !lends
	})
	if len(stand) == 0 {
		return Forever
	}
	if due, ok := lending.Releases(b.served, s.length); ok && s.phase >= due {
		b.served = s.phase
		chance := s.hash ^ uint64(s.window.Index)
		slices.SortFunc(stand, func(a, b asked) int {
			return cmp.Compare(lending.Chance(a.guest, chance), lending.Chance(b.guest, chance))
		})
		for _, a := range stand[:min(2, len(stand))] {
			if s, ok := g.sceneLocked(); ok {
				g.lendLocked(at, s, a)
			}
		}
	}
	return g.releasesLocked(s)
}

// lendAtEdgeLocked lends to guests that have asked, at the beginning of a window. It returns whether it
// lent any.
func (g *Gate) lendAtEdgeLocked() (lent bool) {
	b, l := &g.mu.borrower, &g.mu.ledger
	s, ok := g.sceneLocked()
	if !ok || !l.lends() || !b.edge {
		return false
	}
	b.lendAtEdge(&s, g.callersLocked(),
		func(guest string) bool {
			_, lends := g.LendsTo(guest, g.mu.last)
			return lends
		},
		func() (n, kept int64) {
			kept, _ = l.kept()
			return l.shares(), kept
		},
		func(guest string, n int64) {
			g.lendOutLocked(guest, n)
			lent = true
		})
	return lent
}
