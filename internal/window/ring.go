package window

import (
	"time"

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
	length time.Duration
	span   int64 // slots that count; the older ones are kept in case the transit grows
	slot   int64 // the newest
	sum    int64 // of the slots that count
	counts [ringSlots]int64
}

func newRing(length time.Duration, now int64) *ring {
	return &ring{length: length, span: spanSlots, slot: slotAt(length, now)}
}

// reach sets the transit: the time that calls may take to the provider.
func (r *ring) reach(transit int64) {
	slot := int64(protocol.SlotOf(r.length))
	span := min(spanSlots+(transit+slot-1)/slot, ringSlots)
	if span == r.span {
		return
	}
	r.span, r.sum = span, 0
	for i := range span {
		r.sum += r.counts[place(r.slot-i)]
	}
}

func place(slot int64) int64 { return ((slot % ringSlots) + ringSlots) % ringSlots }

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
		r.sum -= r.counts[place(r.slot-r.span)]
		r.counts[place(r.slot)] = 0
	}
}

// end returns the first instant after the newest slot.
func (r *ring) end() int64 { return (r.slot + 1) * int64(protocol.SlotOf(r.length)) }

// add counts n permits in the newest slot.
func (r *ring) add(n int64) {
	r.counts[place(r.slot)] += n
	r.sum += n
}

// undo takes n permits that were issued at the instant at out again, if they
// count still.
func (r *ring) undo(at, n int64) bool {
	slot := slotAt(r.length, at)
	if slot > r.slot || r.slot-slot >= r.span || r.counts[place(slot)] < n {
		return false
	}
	r.counts[place(slot)] -= n
	r.sum -= n
	return true
}

// when returns the instant, not before now, at which n permits can be issued
// together under a share if nothing else is; Forever if the share is too small.
func (r *ring) when(n, share, now int64) int64 {
	if n > share {
		return Forever
	}
	back := n - (share - r.sum) // so many have to leave the span first
	if back <= 0 {
		return now
	}
	i := r.slot - r.span // the last that does not count
	for back > 0 {
		i++
		back -= r.counts[place(i)]
	}
	return (i + r.span) * int64(protocol.SlotOf(r.length))
}
