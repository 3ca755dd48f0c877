package window

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// This file is what is special to a limit in flight: its permits come back when their calls end. Such a limit counts by
// parts of time (protocol.Part), and a permit is used while its call is under way. When a call ends in the part in
// which it began, its permit can be issued again. When it ends later, the permit goes the way of what is left of a
// sliding limit: it is given back to etcd, and if permits are wanted, the same transaction takes some of the running part.

// inFlight returns the limit in flight that binds; nil if there is none.
func (a *Account) inFlight() *long {
	for b := range a.binding {
		if b.InFlight {
			return b
		}
	}
	return nil
}

// longestInFlight is for how long calls in flight may be known here; 0 if no limit is in flight. A permit counts no more
// at protocol.Budget.Until: 11 parts after its own has begun. A part is an eighth of Window, so 2*Window is enough.
func (a *Account) longestInFlight() (most time.Duration) {
	for i := range a.budgets {
		if b := &a.budgets[i]; b.InFlight {
			most = max(most, 2*b.Window)
		}
	}
	return most
}

// known returns until when the limit is kept here after the newest view lacks it: to the end of its window or part. A limit
// in flight is kept for as long as a call that began in its part may count (Until), and so is a Whole limit that slides, for
// what was issued of it is counted nowhere else. Of a limit in flight what is in hand goes back to etcd at once, and the
// permit of a call when the call ends. Of another one what is in hand goes back after longRest, or not at all if its window
// or part ends before.
func (b *long) known() int64 {
	if b.InFlight || b.Whole {
		return b.Until()
	}
	return b.End
}

// grantOf is the grant of calls that begin now.
func (b *long) grantOf(at int64, epoch uint32) queue.Grant {
	return queue.Grant{Start: b.Start, End: b.Ends(), At: at, Epoch: uint64(epoch) | queue.InFlight}
}

// end books that n calls of the grant have ended. It returns false if they count no more, or not here; of a Whole limit that
// is still known it returns true. A grant does not say of which limit it is, but its length tells: Start to End depends on the
// limit's Window alone, and an account has one limit of each Window.
func (a *Account) end(n int64, grant queue.Grant, now int64) bool {
	for i := range a.budgets {
		if b := &a.budgets[i]; b.InFlight && b.Ends()-b.Start == grant.End-grant.Start && b.end(n, grant.Start, now, a.windows) {
			return true
		}
	}
	return false
}

// end books that n calls have ended that began in the part that starts at start, in corrected wall time; now is
// monotonic. It returns false if the part is not known here any more; of a Whole limit it always returns true. Some of
// the permits of the running part may have to go back to etcd from now on: for others (yields), or because the limit was
// lowered (excess).
func (b *long) end(n, start, now int64, windows *plans.Windows) bool {
	switch {
	case start == b.Start:
		b.used -= n
		if !b.Whole { // else there are no others
			b.wanted.owed += min(n, max(b.yields(now, windows.Lending.Instances), b.excess()))
		}
		return true
	case b.Whole:
		b.purse.Free(n, b.PartAt(start))
		b.purse.Taken = b.whole(windows.Over)
		return true
	}
	for i := range b.ended {
		if e := &b.ended[i]; e.start == start {
			e.used -= n
			b.again = 0 // it can be moved at once
			return true
		}
	}
	return false
}

// underWay returns how many calls are under way whose permits count here.
func (b *long) underWay() (n int64) {
	if b.Whole {
		return b.counting()
	}
	n = b.used
	for i := range b.ended {
		n += b.ended[i].used
	}
	return n
}

// has returns how many permits the instance has, those that are not used included.
func (b *long) has() int64 { return b.underWay() + max(0, b.hand()) + b.toReturn() }

// toReturn returns how many permits can only be given back: what is in hand of earlier parts, and what is owed to others
// of the running one.
func (b *long) toReturn() (n int64) {
	n = b.wanted.owed
	for i := range b.ended {
		n += max(0, b.ended[i].hand())
	}
	return n
}

// endedIn returns what is to be kept of earlier parts when the part next begins: every part that has something and still
// counts then. A part has something if permits of it are in hand, if calls in flight of it are under way, or while etcd is
// asked for permits of it or to take some back. The part that ends is not kept if etcd was restored while it was asked for
// some.
func (b *long) endedIn(next protocol.Part) []ended {
	parts := slices.Clone(b.ended)
	if !b.forgotten {
		parts = append(parts, ended{start: b.Start, part: b.purse.Part, taken: b.purse.Taken, used: b.used, asked: b.state == handedOut})
	}
	return slices.DeleteFunc(parts, func(e ended) bool {
		counts := e.part.Number > next.Number-next.Counted
		return !counts || e.hand() <= 0 && !(b.InFlight && e.used > 0) && !e.asked && e.back == 0
	})
}

// nextReturn takes out what is to be given back next, and returns it: what the running part owes to others or, if that is
// nothing, what is in hand of an earlier part.
func (b *long) nextReturn() (back escrow.Back) {
	if n := b.wanted.owed; n > 0 {
		b.wanted.owed = 0
		b.purse.Taken -= n
		return escrow.Back{N: n, Of: b.purse.Part}
	}
	for i := range b.ended {
		if back = b.ended[i].give(); back.N > 0 {
			break
		}
	}
	return back
}

// wanted has the asks for a limit in flight: what others lack, by the newest total that etcd has answered or that its
// watch has brought (hear), what goes back to etcd for that, and what this instance asks for itself.
type wanted struct {
	n, poor     int64 // permits that others lack: see escrow.Total.Asked
	othersUntil int64 // monotonic instant from which on n and poor are void
	owed        int64 // permits of the running part that are to go back to etcd: see long.end
	// tried is the most permits that one call wanted in vain, of the calls that did not wait and came since an answer of etcd
	// last left the limit at rest (fund). asked is the value of tried when etcd had too little: such calls may come again once
	// permits are free. Calls that wait are in the queue.
	tried, asked int64
	askedUntil   int64 // monotonic instant from which on asked is void
	// total is the newest that the watch brought while etcd was asked, and revision that of its entry; 0: it brought none.
	total    escrow.Total
	revision int64
}

// handPart: an instance that has calls fills its hand up to 1/handPart of an equal part of the limit while nobody asks,
// but up to 1 at least (escrow.Rule.Chunk), so that its next calls need not wait for etcd.
const handPart = 4

// handOf returns Rule.Share of a limit in flight: the number of permits up to which an instance fills its hand. It may be
// 0; Rule.Chunk makes it at least 1.
func (a *Account) handOf(b *long) int64 {
	return b.Permits / handPart / int64(max(1, a.windows.Lending.Instances))
}

// inFlightAgain is the time after which an instance asks again that has found too few permits of a limit in flight,
// if no total says sooner that there are some.
const inFlightAgain = int64(800 * time.Millisecond)

// tooFew notes that etcd, asked just now, has given too few permits. It returns the monotonic instant before which it is
// not asked again. Of a limit in flight tooFew also notes what was tried in vain; if nothing was wanted, it returns 0.
func (b *long) tooFew(now int64) int64 {
	switch {
	case !b.InFlight:
		return now + spentAgain
	case b.need == 0: // no call lacked permits: etcd was asked only to fill the hand
		return 0
	}
	if b.wanted.tried > 0 {
		b.wanted.asked, b.wanted.askedUntil = b.wanted.tried, now+escrow.AskLasts
	}
	return now + inFlightAgain
}

// leftIn returns what left would return at an instance whose running part is so many parts later than the one here. Each
// instance begins its parts at a time of its own (protocol.BudgetOf). So others may be in the part before still, in which
// permits of an older part count that count here no more, or in the next part already, in which fewer count than here.
func (b *long) leftIn(later int64) int64 {
	if b.Whole {
		return 0
	}
	part := b.purse.Part
	part.Number += later
	theirs := b.purse.In(part)
	return theirs.Left(b.Permits)
}

// leftToOthers returns how many permits are left in etcd at least, as any other instance sees it, whichever part runs there.
func (b *long) leftToOthers() int64 { return max(0, b.leftIn(-1)) }

// othersLack returns how many permits others lack beyond what is left to them in etcd and what is owed to them already. now
// is monotonic.
func (b *long) othersLack(now int64) int64 {
	if now >= b.wanted.othersUntil {
		return 0
	}
	return max(0, b.wanted.n-b.leftToOthers()-b.wanted.owed)
}

// yields returns how many of the permits of calls that end now go to others at most. It is 0 unless two things are so. Without
// what it gives back anyway this instance has more than an equal part of the limit. And what others lack to their equal
// parts (poor) is more than what is left to them in etcd and what this instance gives back anyway, together.
func (b *long) yields(now int64, instances int) int64 {
	if b.wanted.poor == 0 || now >= b.wanted.othersUntil {
		return 0
	}
	beyond := b.has() - b.toReturn() - escrow.Fair(b.Permits, int64(instances))
	return max(0, min(beyond, b.wanted.poor-b.leftToOthers()-b.toReturn()))
}

// excess returns how many permits more are handed out than the limit has, since it was lowered. What this instance gives
// back already is taken off.
func (b *long) excess() int64 { return max(0, b.purse.Out()-b.Permits-b.toReturn()) }

// catchUp takes the total that the watch has brought while etcd was asked (hear), if it is newer than etcd's answer.
func (b *long) catchUp(now int64) {
	t, revision := b.wanted.total, b.wanted.revision
	if b.wanted.total, b.wanted.revision = (escrow.Total{}), 0; revision > b.purse.Revision() {
		b.purse.Hear(t, revision)
		b.noteLeft(now)
	}
}

// hear takes a total that was written at a revision, unless that revision or a later one is known here already. While etcd
// is asked it notes only what others lack, and keeps the total for catchUp. now is monotonic, wall the same instant in
// corrected wall time, and by names this instance in asks.
func (b *long) hear(t escrow.Total, revision, now, wall int64, by uint64) {
	if revision <= max(b.purse.Revision(), b.wanted.revision) {
		return
	}
	b.noteAsks(&t, now, wall, by)
	if b.state == handedOut {
		b.wanted.total, b.wanted.revision = t, revision
		return
	}
	b.purse.Hear(t, revision)
	b.noteLeft(now)
}

// noteAsks notes what others lack by a total that etcd has just answered, or that the watch has brought: see hear.
func (b *long) noteAsks(t *escrow.Total, now, wall int64, by uint64) {
	b.wanted.n, b.wanted.poor = t.Asked(by, wall)
	b.wanted.othersUntil = now + escrow.AskLasts
}

// noteLeft ends the pause (again) if permits are left in etcd, and has the limit want again what was asked for.
func (b *long) noteLeft(now int64) {
	if b.left() <= 0 {
		return
	}
	if b.again = 0; b.state == atRest && b.wanted.asked > 0 && now < b.wanted.askedUntil {
		b.state, b.need = wanting, b.wanted.asked
	}
}

// gives reports whether something is to be given back to others now.
func (b *long) gives(now int64) bool {
	return b.state != handedOut && (b.wanted.owed > 0 || b.othersLack(now) > 0 && (b.hand() > 0 || b.toReturn() > 0))
}

// Heard takes a total of the limit in flight with this protocol.Budget.Name; it was written at a revision.
func (g *Gate) Heard(at clock.Instant, name string, t escrow.Total, revision int64) {
	g.mu.Lock()
	defer g.unlock()
	g.currentLocked(at)
	l := &g.mu.ledger
	b := l.inFlight()
	if g.mu.closed || b == nil || b.Whole || b.Name() != name {
		return
	}
	b.hear(t, revision, g.mu.last.Mono, g.mu.last.Mono+l.plan.Offset, l.by())
	if g.wantForQueueLocked(); l.WantsMore() {
		g.Wanting()
	}
	g.tellGivesLocked()
}

// asksForNobodyLocked reports whether this instance's ask keeps others from permits that are free in etcd, though nobody
// waits here any more. The caller for whom it asked has gone, or was served by the permit of a call that ended here. The
// ask of a call that did not wait stands until it is void: such calls may come again.
func (g *Gate) asksForNobodyLocked(b *long) bool {
	l, now := &g.mu.ledger, g.mu.last.Mono
	if !b.InFlight || b.state != atRest || b.away || b.leftIn(1) <= 0 || b.wanted.n == 0 || now >= b.wanted.othersUntil {
		return false
	}
	total := b.purse.Total()
	return total.AskedBy(l.by(), now+l.plan.Offset) && g.queueWantsLocked() <= 0 && (b.wanted.asked == 0 || now >= b.wanted.askedUntil)
}

// tellGivesLocked has the session ask for uses, by Wanting, if permits are to be given back to others, or this
// instance's ask is to be taken back (asksForNobodyLocked). So it does if permits are left here of a limit in flight that
// binds no more.
func (g *Gate) tellGivesLocked() {
	for i := range g.mu.ledger.budgets {
		if b := &g.mu.ledger.budgets[i]; b.InFlight && (b.binds && (b.gives(g.mu.last.Mono) || g.asksForNobodyLocked(b)) || !b.binds && b.state != handedOut && b.hand()+b.toReturn() > 0) {
			g.Wanting()
			return
		}
	}
}

// by names the instance in asks. It is never 0: an escrow.Use.By of 0 asks for nothing.
func (a *Account) by() uint64 { return a.windows.Lending.Hash | 1 }
