package shape

import (
	"math"
	"math/bits"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// bucket is one limit's permits that accrue evenly: share of them in a span (the
// window's length, and what the clock may drift over it), and burst of them at
// most are kept. It is the generic cell rate algorithm (ITU-T I.371): all that it
// remembers is one instant.
//
// When the share grows, the permits that have accrued stay as many; when it
// shrinks, they shrink with it.
type bucket struct {
	neutral
	length time.Duration
	since  int64 // when it began to count
	// empty is the instant at which the bucket would have been empty, had the
	// permits since then accrued at the present share.
	empty        int64
	share, burst int64
	ready        int64 // permits that may be issued, as of the latest roll
	rolled       int64 // the instant of the latest roll
	// owes says that a debt is paid of it: then nothing spills, for every permit was due at
	// the instant at which it accrued.
	owes bool
}

// unused is bucket.empty before the first permit was issued: it is full.
const unused = math.MinInt64 / 4

// full is the time in which an empty bucket fills, rounded down.
func (b *bucket) full() int64 { return scaled(b.burst, spanOf(b.length), b.share, 0) }

// cost is the time in which n permits accrue, rounded up.
func (b *bucket) cost(n int64) int64 { return scaled(n, spanOf(b.length), b.share, b.share-1) }

func (b *bucket) set(c *Count, t Terms) {
	if b.length == 0 {
		b.length, b.since = c.Window.Length, t.Now
	}
	if c.Bound != Unbounded {
		b.roll(t.Now, c.Bound, t.Burst, t.Owes)
	}
}

func (b *bucket) left(*Count) int64 { return b.ready }

// roll takes the share, the burst, and whether there is a debt, as of the instant now.
func (b *bucket) roll(now, share, burst int64, owes bool) {
	if share > b.share && b.empty != unused {
		age := max(0, min(now-b.empty, b.full()))
		if b.share == 0 {
			age = 0
		}
		b.empty = max(b.empty, now-scaled(age, b.share, share, 0))
	}
	was := *b
	b.share, b.burst, b.rolled = share, min(burst, share), now
	if owes && !b.owes && b.share > 0 { // what has spilled is gone
		b.empty = max(b.empty, now-b.full())
	}
	b.owes = owes
	b.ready = b.at(now)
	if was.rolled == now && was.share == b.share && was.burst == b.burst && was.owes == owes {
		b.ready = max(b.ready, was.ready) // what take rounds off was there at this instant
	}
}

// at returns how many permits there are at the instant now.
func (b *bucket) at(now int64) int64 {
	switch age := now - b.empty; {
	case b.share <= 0 || b.burst <= 0 || age <= 0:
		return 0
	case b.owes:
		return scaled(age, b.share, spanOf(b.length), 0)
	case age >= b.full():
		return b.burst
	default:
		return min(b.burst, scaled(age, b.share, spanOf(b.length), 0))
	}
}

// take issues n permits, at the instant now or before: permits that spilled until
// then do not come back. A bucket is never more than empty: permits that are issued
// while its limit does not bind do not count against it for longer.
func (b *bucket) take(n, now int64) {
	if b.share <= 0 || n <= 0 {
		return
	}
	from := b.empty
	if !b.owes {
		from = max(from, now-b.full())
	}
	b.empty = max(b.empty, min(from+min(b.cost(n), math.MaxInt64/8), now+1))
	b.ready -= n
}

// undo gives n permits back that were issued at the instant at, less those that
// have accrued since: they might have spilled, had the n never been issued.
func (b *bucket) undo(n, at, now int64) {
	if back := b.cost(n) - (now - at) - 1; at >= b.since && b.share > 0 && back > 0 {
		b.empty -= back
		b.ready = b.at(now)
	}
}

func (b *bucket) when(_ *Count, n int64, as Present) int64 {
	if b.share <= 0 || b.burst <= 0 {
		return clock.Forever
	}
	if as.Taken == 0 && n <= b.at(as.Now) {
		return as.Now
	}
	empty := b.empty
	if as.Taken > 0 { // when before the edge is not known: as if all were at the edge
		if !b.owes {
			empty = max(empty, as.Edge-b.full())
		}
		empty += b.cost(as.Taken)
	}
	if !b.owes {
		empty = max(empty, as.Now-b.full())
	}
	cost := b.cost(n)
	if cost > clock.Forever/4 {
		return clock.Forever
	}
	return max(as.Now, empty+cost)
}

// slotEnd is the slot's end, or the instant at which the bucket is full, since permits spill
// from then on. A full bucket ends after a small part of the time that it takes to fill.
func (b *bucket) slotEnd(now int64) int64 {
	full, slot := b.full(), int64(protocol.SlotOf(b.length))
	return min((slotAt(b.length, now)+1)*slot, max(b.empty+full, now+max(full/64, 1)))
}

// debtEvery is the time in which a bucket's accruals pay a debt together, however small the
// burst: so the rate of payments does not depend on how punctual wake-ups are.
const debtEvery = int64(10 * time.Millisecond)

func (b *bucket) part(*Count) int64 {
	return max(b.burst/DebtParts, scaled(debtEvery, b.share, spanOf(b.length), 0))
}

// scaled returns (a*b + plus)/c, held within int64, for numbers that are not
// negative; c is positive.
func scaled(a, b, c, plus int64) int64 {
	if c <= 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(plus), 0)
	if hi += carry; hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
