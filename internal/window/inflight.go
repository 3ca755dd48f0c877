package window

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// This file is what is special to a limit in flight: its permits come back when their calls end. A permit is
// used while its call is under way. In the part of time in which the call began it can then be issued again;
// what comes back of an earlier part is moved to the running one, as what is left of a sliding limit is.

// inFlight returns the limit in flight that binds; nil if there is none.
func (a *Account) inFlight() *long {
	for b := range a.binding {
		if b.InFlight {
			return b
		}
	}
	return nil
}

// heldFor is for how long calls in flight may be known here; 0 if there are none.
func (a *Account) heldFor() (most time.Duration) {
	for i := range a.budgets {
		if b := &a.budgets[i]; b.InFlight {
			most = max(most, 2*b.Window)
		}
	}
	return most
}

// grantOf is the grant of calls that begin now.
func (b *long) grantOf(at int64, epoch uint32) queue.Grant {
	return queue.Grant{Start: b.Start, End: b.Ends(), At: at, Epoch: uint64(epoch) | queue.InFlight}
}

// end books that n calls of the grant have ended. It returns false if they count no more, or not here.
func (a *Account) end(n int64, grant queue.Grant) bool {
	for i := range a.budgets {
		if b := &a.budgets[i]; b.InFlight && b.Ends()-b.Start == grant.End-grant.Start && b.end(n, grant.Start, a.windows.Over) {
			return true
		}
	}
	return false
}

// end books that n calls of a part have ended.
func (b *long) end(n, start, wall int64) bool {
	switch {
	case start == b.Start:
		b.used -= n
		return true
	case b.Whole:
		b.purse.Free(n, b.PartAt(start))
		b.purse.Taken = b.whole(wall)
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

// underWay returns how many calls are under way of a limit in flight.
func (b *long) underWay() (n int64) {
	if b.Whole {
		return b.used + b.Permits - b.limit()
	}
	n = b.used
	for i := range b.ended {
		n += b.ended[i].used
	}
	return n
}

// idle returns how many permits of earlier parts are in hand.
func (b *long) idle() (n int64) {
	for i := range b.ended {
		n += max(0, b.ended[i].hand())
	}
	return n
}

// endedIn returns what is left of earlier parts in a later one. Of a sliding limit it is of one part, and of
// one in flight of each that counts.
func (b *long) endedIn(of protocol.Part) (all []ended) {
	if !b.forgotten && (b.hand() > 0 || b.state == handedOut || b.InFlight && b.used > 0) {
		all = []ended{{start: b.Start, part: b.purse.Part, taken: b.purse.Taken, used: b.used}}
	}
	if !b.InFlight {
		if len(all) == 0 {
			return b.ended
		}
		return all
	}
	for _, e := range b.ended {
		if e.part.Number > of.Number-of.Counted && (e.used > 0 || e.hand() > 0) {
			all = append(all, e)
		}
	}
	return all
}

// giveEnded returns what is in hand of an earlier part as what is to be given back, and has it no more.
func (b *long) giveEnded() (back escrow.Back) {
	for i := range b.ended {
		if back = b.ended[i].give(); back.N > 0 {
			break
		}
	}
	return back
}
