package shape

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

const (
	// spanSlots is how many slots a permit counts in: as many as a span of one window's
	// length can touch, by any clock. 500 slots make a window. A span that begins
	// within a slot touches one more. A clock that is slow by one part in a thousand
	// adds another.
	spanSlots = 502
	// ringSlots is the same for the longest transit, of half a window.
	ringSlots = spanSlots + 250
)

// ring counts the permits issued in the latest slots of time, for one limit with a
// sliding window. A permit counts from its slot on for span slots; so the permits
// of every span of the window's length, and the transit, are counted together when
// the last of them is issued. Slots are of monotonic time: no clock need be right.
//
// 6 kB, however many permits there are.
type ring struct {
	neutral
	length time.Duration
	since  int64 // when it began to count
	span   int64 // slots that count; the older ones are kept in case the transit grows
	slot   int64 // the newest
	sum    int64 // of the slots that count
	counts [ringSlots]int64
}

func (r *ring) set(c *Count, t Terms) {
	if r.length == 0 {
		r.length, r.since = c.Window.Length, t.Now
	}
	r.allowFor(t.Transit)
	r.roll(t.Now)
}

func (r *ring) left(c *Count) int64 { return c.Bound - r.sum }

// allowFor sets the transit: the time that calls may take to the provider.
func (r *ring) allowFor(transit int64) {
	slot := int64(protocol.SlotOf(r.length))
	span := min(spanSlots+(transit+slot-1)/slot, ringSlots)
	if span == r.span {
		return
	}
	r.span, r.sum = span, 0
	for i := range span {
		r.sum += r.counts[indexOf(r.slot-i)]
	}
}

func indexOf(slot int64) int64 { return ((slot % ringSlots) + ringSlots) % ringSlots }

// roll moves on to the slot of the instant now, and forgets those that no span
// can touch any more. Time that runs back changes nothing.
func (r *ring) roll(now int64) {
	to := slotAt(r.length, now)
	if to-r.slot >= ringSlots {
		r.counts, r.sum = [ringSlots]int64{}, 0
		r.slot = to
	}
	for r.slot < to {
		r.slot++
		r.sum -= r.counts[indexOf(r.slot-r.span)]
		r.counts[indexOf(r.slot)] = 0
	}
}

// slotEnd returns the first instant after the newest slot.
func (r *ring) slotEnd(int64) int64 { return (r.slot + 1) * int64(protocol.SlotOf(r.length)) }

// take counts n permits in the newest slot.
func (r *ring) take(n, _ int64) {
	r.counts[indexOf(r.slot)] += n
	r.sum += n
}

func (r *ring) undo(n, at, _ int64) {
	slot := slotAt(r.length, at)
	if at < r.since || slot > r.slot || r.slot-slot >= r.span || r.counts[indexOf(slot)] < n {
		return
	}
	r.counts[indexOf(slot)] -= n
	r.sum -= n
}

// when has each permit of more than a bound wait until the one that many before it has left.
func (r *ring) when(c *Count, n int64, as Present) int64 {
	if c.Bound <= 0 {
		return clock.Forever
	}
	slot, spans, at := int64(protocol.SlotOf(r.length)), (n-1)/c.Bound, as.Now
	back := n - spans*c.Bound - (r.left(c) - as.Taken) // so many have to leave the span first
	if back > 0 {
		i := r.slot - r.span // the last that does not count
		for back > 0 && i < r.slot {
			i++
			back -= r.counts[indexOf(i)]
		}
		at = max(at, (i+r.span)*slot)
	}
	switch {
	case spans == 0:
		return at
	case spans > (clock.Forever/2-max(0, at))/(r.span*slot):
		return clock.Forever
	}
	return (slotAt(r.length, at) + spans*r.span) * slot
}
