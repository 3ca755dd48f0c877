package window

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// Correct books that n permits, which were issued together by that grant and have that serial number, cost actual permits.
// If actual is less than n, the rest is given back, and back is true, provided that it still counts, and that it is known
// not to have been given back before (returned.knows). If actual is more, the difference becomes a debt. first is false,
// and nothing changes, if they were corrected before and returned still remembers that, or if the gate is closed. What is
// given back goes into the segment that runs, if nothing but its number of permits changes by that (backInPlaceLocked).
// Otherwise the gate counts anew, as it does for a debt.
func (g *Gate) Correct(at clock.Instant, grant queue.Grant, serial uint64, n, actual int64) (first, back bool) {
	g.mu.Lock()
	defer g.unlock()
	if g.mu.closed {
		return false, false
	}
	g.runningLocked(at)
	if !g.mu.returned.first(serial, &g.mu.ledger) {
		return false, false
	}
	if actual == n {
		return true, false
	}
	l, inPlace := &g.mu.ledger, actual < n && g.backInPlaceLocked()
	if inPlace {
		g.advanceLocked()
	} else {
		g.settleLocked()
	}
	had := l.budget()
	switch {
	case actual > n:
		l.debt = queue.Sum(l.debt, actual-n)
		g.mu.judge = g.mu.judge || g.mu.queue.Len() <= short
	case actual < n && g.mu.returned.knows(grant.At) && l.refund(n-actual, grant.Small()):
		if back = true; grant.Large() && !grant.InFlight() { // of calls in flight refund has taken nothing out of what was issued
			g.mu.borrower.claim.gaveBack(n - actual)
		}
	}
	if more := l.budget() - had; inPlace && more >= 0 {
		g.mu.published += more
		g.segment.Load().left.Add(more)
		g.tellBookedLocked()
		g.tellGivesLocked()
		return true, back
	}
	g.rebuildLocked(at)
	return true, back
}

// backInPlaceLocked reports whether permits that come back change only how many are left, so that they go into the
// segment that runs: nobody waits for them, no debt takes them, and they can be issued at once and to all classes.
func (g *Gate) backInPlaceLocked() bool {
	p := g.planLocked()
	return g.mu.queue.Len() == 0 && g.mu.ledger.debt == 0 && !g.mu.stale && !p.Gradual() && p.Critical <= 0
}

// returned remembers, by serial number, which permits were given back or corrected, so that none is given back or
// corrected a second time while it is remembered. While the limits stay, it remembers each for at least as long as the
// shortest one's window lasts or, if that is longer, for as long as calls in flight may be known (longestInFlight). It
// forgets in two steps, as later numbers come. Permits that were issued before the time that it remembers may have been
// given back already. So they are not given back (knows), but a higher cost of them is booked, maybe once more.
type returned struct {
	since         int64 // monotonic instant at which recent was begun
	before        int64 // monotonic instant; all that came later is remembered
	recent, older serialSet
}

// serialSet is a set of serial numbers. A page has a bit for each of pageBits consecutive numbers, and is made when the first
// of them comes. So where most permits are given back or corrected, most bits of a page are used.
type serialSet map[uint64]*serialPage

// serialPage has a bit for each of pageBits serial numbers.
type serialPage [pageBits / 64]uint64

// pageBits is how many serial numbers share a page.
const pageBits = 512

// has reports whether a serial number of the page is in the set. A nil page has none.
func (p *serialPage) has(serial uint64) bool {
	return p != nil && p[serial%pageBits/64]>>(serial%64)&1 == 1
}

// first reports whether the permits with that serial number are given back or corrected for the first time, as far as is
// remembered. It remembers the number from then on. What it forgets goes by the ledger's present (ledger.now).
func (r *returned) first(serial uint64, l *ledger) bool {
	length := time.Minute // while no limit is known
	if a := l.shortest(); a != nil {
		length = a.Window.Length
	}
	length = max(length, l.longestInFlight())
	switch {
	case r.recent == nil:
		r.recent, r.since, r.before = serialSet{}, l.now, math.MinInt64
	case l.now-r.since >= int64(length):
		r.older, r.before = r.recent, r.since
		r.recent, r.since = serialSet{}, l.now
	}
	page := r.recent[serial/pageBits]
	if page.has(serial) || r.older[serial/pageBits].has(serial) {
		return false
	}
	if page == nil {
		page = &serialPage{}
		r.recent[serial/pageBits] = page
	}
	page[serial%pageBits/64] |= 1 << (serial % 64)
	return true
}

// knows reports whether r still remembers which of the permits that were issued at the monotonic instant at were given
// back or corrected. It can be false for permits that still count: if the shortest limit was removed, or replaced by
// a longer one, permits count under the longer one for longer than they were remembered. Such permits stay used, since
// nobody knows whether they were given back before.
func (r *returned) knows(at int64) bool { return at > r.before }
