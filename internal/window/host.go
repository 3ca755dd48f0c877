package window

import (
	"cmp"
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/quota"
)

// This file has what a gate lends to guests that ask. Callers who wait take a window at its edge,
// before an ask can come. So guests that have asked are lent some there first: see asks.

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
	return g.lendLocked(at, s, askOf(guest, n, hash, s.window, l.lentTo(guest), from))
}

// lendLocked lends to a guest as much as the rules say. The rest stands, or the guest asks again
// by itself.
func (g *Gate) lendLocked(at clock.Instant, s scene, a asked) int64 {
	b, l := &g.mu.borrower, &g.mu.ledger
	g.noteCallsLocked(g.mu.last)
	taken := g.takenLocked()
	flow, waiting, critical := &b.calls, g.mu.queue.permits(), g.mu.queue.lanes[Critical].permits
	if g.mu.queue.large(Sheddable) > 0 && g.yieldsLocked(s, a.guest) { // it keeps nothing for large calls
		flow, waiting, critical = g.smallLocked(), waiting-g.mu.queue.large(Sheddable), critical-g.mu.queue.large(Critical)
	}
	h := lending.Host{
		Phase: s.phase, Length: s.length, Share: s.own(), Issued: g.smallIssuedLocked(s), Left: l.shares() - taken, Kept: g.segment.Load().floor,
		Forecast: flow.Forecast(s.phase, s.length, waiting),
		Critical: b.of[Critical].Forecast(s.phase, s.length, critical),
		Duty:     s.rules.OnDuty(l.plan.Lending.Hash, s.window.Index),
		Chance:   l.plan.Lending.Hash ^ uint64(s.window.Index),
	}
	if a.until > s.window.Start() {
		h.Part = l.partOf(a.guest, s.instances, l.plan.Lending.Hash)
	}
	n := h.Lend(s.rules, a.permits, a.poor, a.critical)
	if n > 0 {
		g.settleLocked() // callers may have taken more meanwhile
		if n = min(n, l.shares()-h.Kept); n > 0 {
			g.lendOutLocked(a.guest, n)
		}
		g.rebuildLocked(at)
	}
	n = max(0, n)
	if a.permits -= n; n > 0 && a.poor > 0 {
		a.permits = 0
	}
	a.critical = max(0, a.critical-n)
	if b.asked.keep(a, s.window); a.permits > 0 {
		g.armLocked(g.releasesLocked(s))
	}
	return n
}

// lendOutLocked lends n permits of those that may be issued, and tells the guest.
func (g *Gate) lendOutLocked(guest string, n int64) {
	l := &g.mu.ledger
	g.Lent(l.plan.Lending.Self, guest, l.lend(guest, n))
	g.mu.borrower.Lent += n
	g.mu.forecast.forget()
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
	stand := slices.DeleteFunc(slices.Clone(b.asked), func(a asked) bool {
		_, lends := g.LendsTo(a.guest, g.mu.last) // a guest that has left uses no permits
		return a.permits == 0 || !lends
	})
	if len(stand) == 0 {
		return Forever
	}
	if due, ok := lending.Releases(b.served, s.length); ok && s.phase >= due {
		b.served = s.phase
		chance := g.mu.ledger.plan.Lending.Hash ^ uint64(s.window.Index)
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

// endAskedLocked ends the asks of the window before.
func (g *Gate) endAskedLocked() {
	b := &g.mu.borrower
	b.asked.enter(b.window)
	b.served, b.joined = 0, false
}

// lendAtEdgeLocked lends to guests that have asked, at the beginning of a window. It returns whether it
// lent any.
func (g *Gate) lendAtEdgeLocked() (lent bool) {
	b, l := &g.mu.borrower, &g.mu.ledger
	s, ok := g.sceneLocked()
	if !ok || !l.lends() || b.joined {
		return false
	}
	b.joined = true
	b.asked.leave(func(guest string) bool {
		_, lends := g.LendsTo(guest, g.mu.last)
		return lends
	})
	critical := b.of[Critical].Forecast(s.phase, s.length, g.mu.queue.lanes[Critical].permits)
	for i := range b.asked {
		a := &b.asked[i]
		kept, _ := l.kept()
		n := a.atEdge(s.window, l.partOf(a.guest, s.instances, l.plan.Lending.Hash), l.shares()-int64(math.Ceil(critical)), g.mu.queue.large(Sheddable) > 0)
		if n = min(n, l.shares()-kept); n > 0 {
			g.lendOutLocked(a.guest, n)
			lent = true
		}
	}
	return lent
}
