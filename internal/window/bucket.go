package window

import (
	"math"
	"math/bits"
	"time"
)

// bucket is one limit's permits that accrue evenly: share of them in a span (the
// window's length, and what the clock may drift over it), and burst of them at
// most are kept. It is the generic cell rate algorithm (ITU-T I.371): all that it
// remembers is one instant.
//
// When the share grows, the permits that have accrued stay as many; when it
// shrinks, they shrink with it.
type bucket struct {
	length time.Duration
	// empty is the instant at which the bucket would have been empty, had the
	// permits since then accrued at the present share.
	empty        int64
	share, burst int64
	left         int64 // permits that may be issued, as of the latest roll
	// owes says that a debt is paid of it: then nothing spills, for every permit was due at
	// the instant at which it accrued.
	owes bool
}

// newBucket returns one that is full.
func newBucket(length time.Duration) *bucket {
	return &bucket{length: length, empty: unused}
}

// unused is bucket.empty before the first permit was issued.
const unused = math.MinInt64 / 4

// full is the time in which an empty bucket fills, rounded down.
func (b *bucket) full() int64 { return scaled(b.burst, spanOf(b.length), b.share, 0) }

// cost is the time in which n permits accrue, rounded up.
func (b *bucket) cost(n int64) int64 { return scaled(n, spanOf(b.length), b.share, b.share-1) }

// roll takes the share, the burst, and whether there is a debt, as of the instant now.
func (b *bucket) roll(now, share, burst int64, owes bool) {
	if share > b.share && b.empty != unused {
		age := max(0, min(now-b.empty, b.full()))
		if b.share == 0 {
			age = 0
		}
		b.empty = max(b.empty, now-scaled(age, b.share, share, 0))
	}
	b.share, b.burst = share, min(burst, share)
	if owes && !b.owes && b.share > 0 { // what has spilled is gone
		b.empty = max(b.empty, now-b.full())
	}
	b.owes = owes
	b.left = b.at(now)
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
	b.left -= n
}

// undo gives n permits back that were issued at the instant at, less those that
// have accrued since: they might have spilled, had the n never been issued.
func (b *bucket) undo(at, n, now int64) {
	if back := b.cost(n) - (now - at) - 1; b.share > 0 && back > 0 {
		b.empty -= back
		b.left = b.at(now)
	}
}

// when returns the instant, not before now, at which n permits can be issued
// together if nothing else is; Forever if the bucket never holds so many.
func (b *bucket) when(n, now int64) int64 {
	switch {
	case b.share <= 0 || n > b.burst && !b.owes:
		return Forever
	case n <= b.at(now):
		return now
	case b.owes:
		return max(now, b.empty+b.cost(n))
	}
	return max(now, max(b.empty, now-b.full())+b.cost(n))
}

// end returns until when permits that are issued from now on need not be told
// apart: until the bucket is full, from when on they would spill; and when it is
// full already, a small part of the time that it takes to fill.
func (b *bucket) end(now int64) int64 {
	full := b.full()
	return max(b.empty+full, now+max(full/64, 1))
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
