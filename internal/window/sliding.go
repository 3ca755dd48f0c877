package window

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file is about limits that count by parts of time (protocol.Part): those that slide and, with inflight.go,
// those in flight. A long's window, from Start to End, is one part then. What was taken of a part is issued while it
// runs. The rest is given back when more is taken of a later one, or when nobody wants more.

// ended is what an instance has of an earlier part.
type ended struct {
	// start is the corrected wall time at which the part began here: of a limit in flight each instance has parts of its own.
	// It is 0 if regain has added the part: no use of it is out, and no call of it under way.
	start              int64
	part               protocol.Part
	taken, given, used int64 // permits taken of etcd, given back to it, and issued; in flight, used counts calls under way
	asked              bool  // etcd has been asked for some of it, and has not answered
	back               int64 // of given, what etcd has been asked to take back, and has not answered
}

func (e *ended) hand() int64 { return e.taken - e.given - e.used }

// give returns what e has in hand, to be given back to etcd. From then on e has nothing in hand.
func (e *ended) give() escrow.Back {
	n := max(0, e.hand())
	e.given, e.back = e.given+n, e.back+n
	return escrow.Back{N: n, Of: e.part}
}

// answered is called for each use that comes back (Fund): what it was to give back is on its way no more. It is in hand again
// if it is proved that etcd has not taken it, nor will (KeyUse.Unsent).
func (b *long) answered(u *escrow.KeyUse) {
	unsent := u.Away && u.Unsent
	if unsent && u.Back.Of == u.Purse.Part {
		u.Purse.Taken += u.Back.N // Fund goes by it
	}
	for i := range b.ended {
		e := &b.ended[i]
		// Permits of the part that ran when etcd was asked were added to u.Purse.Taken above, which late takes into the part's
		// entry. They were never in `given` and `back` of that entry: it was made after they had left Taken.
		if e.part != u.Back.Of || e.start == u.Start {
			continue
		}
		if e.back -= u.Back.N; unsent {
			e.given -= u.Back.N
		}
	}
}

// next returns the long that takes b's place when the limit enters another window, the parameter now. other says that the
// limit's windows are others than before (protocol.Other), as after a change of its phase.
func (b *long) next(now protocol.Budget, other bool) long {
	next := newLong(now)
	switch {
	case b.InFlight != now.InFlight: // one counts permits, the other calls under way
		return next
	case now.ByParts() && !now.Whole && !other: // etcd has one total of all parts
		next.purse, next.ended, next.back, next.stated = b.purse.In(now.Part()), b.endedIn(now.Part()), b.back, b.stated
		// The use that is out has the unanswered writes (Purse.Unanswered) too, and late takes them back: one purse alone
		// may settle them.
		if b.state == handedOut {
			next.purse.Settles(escrow.Purse{})
		}
		next.away, next.read = b.away, b.read
		next.funded, next.before = b.funded, b.before-b.used
		next.wanted = b.wanted
		next.wanted.owed = 0 // what was owed is in hand of the part that has ended (ended.hand)
		return next
	}
	next.stated = b.restAt(now.Start)
	switch {
	case b.Whole && now.Whole && other && b.Until() > now.Since():
		// Some of what was issued in earlier windows may count in this one. How much is not known: all is counted.
		next.purse.Keep(b.counting())
		if !now.ByParts() {
			next.used = b.counting()
			next.stated.At = next.used // what is left is beside these
		}
	case now.ByParts() && !other:
		b.purse.Keep(b.used)
		next.purse = b.purse.In(now.Part())
	}
	return next
}

// counting returns how many permits were issued that count, of a limit that is Whole.
func (b *long) counting() int64 {
	if b.ByParts() {
		return b.used + b.purse.Out()
	}
	return b.used
}

// limit returns how many permits of a Whole limit may be issued in the window at most: all or, if the limit counts by
// parts, all but those of earlier parts that still count.
func (b *long) limit() int64 {
	if b.ByParts() {
		return b.purse.Kept(b.Permits)
	}
	return b.Permits
}

// late takes the answer to a question of an earlier part. heard: the answer's total is now the newest known here. Where that
// part is not known any more the answer says nothing: if etcd was restored meanwhile, it may be from before the restore. now
// is monotonic.
func (b *long) late(u *escrow.KeyUse, now int64) (heard bool) {
	b.back = max(0, b.back-u.Back.N)
	i := slices.IndexFunc(b.ended, func(e ended) bool { return e.start == u.Start })
	if i < 0 {
		return false
	}
	e := &b.ended[i]
	e.taken, e.asked = max(e.taken, u.Purse.Taken), false
	if b.exchanged(u, now); b.away {
		b.again = now + int64(AwayAgain)
	}
	heard = b.state != handedOut && !u.Away && u.Purse.Revision() >= b.purse.Revision()
	b.purse.Settles(u.Purse)
	if heard {
		taken := b.purse.Taken
		b.purse = u.Purse.In(b.purse.Part)
		b.purse.Taken = taken
	}
	b.regain()
	if heard {
		b.catchUp(now)
	}
	return heard
}

// regain takes in the permits of writes whose fate became known late (Purse.Regained): each is in hand of its part again.
func (b *long) regain() {
	for _, r := range b.purse.Regained() {
		if r.Of == b.purse.Part {
			b.purse.Taken += r.N
			continue
		}
		i := slices.IndexFunc(b.ended, func(e ended) bool { return e.part == r.Of })
		if i < 0 {
			i = len(b.ended)
			b.ended = append(b.ended, ended{part: r.Of})
		}
		b.ended[i].taken += r.N
	}
}

// returns reports whether something of an earlier part, or for others, goes back to etcd now. While more is wanted it goes
// with what etcd is asked for next, unless nothing more is asked for, since the instance ends or the limit binds no more.
func (b *long) returns(ends bool) bool {
	return (b.state == atRest || b.state == wanting && (ends || !b.binds)) && b.toReturn() > 0
}

// missing returns how many permits must be left of the limit for n to be had. Of a Whole limit what is issued
// in the running part is not in the purse yet.
func (b *long) missing(n int64) int64 {
	if b.Whole {
		return n + b.used
	}
	return n - b.hand() - b.returning()
}
