package escrow

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file carries counts on where an operator changes the length or the phase of a long limit, or whether it
// slides: its windows have other totals then. The total of a new window that overlaps old ones begins with what
// these have handed out. They only fall meanwhile: protocol.Was. docs/proof/protocol.md, section 14.

// Carried are permits that were handed out by the totals of other limits.
type Carried struct {
	N int64 `json:"n"`
	// Part is of a sliding limit alone: the last part of time in which some of them may have been issued.
	Part int64 `json:"part,omitempty"`
}

// Before is a window of a limit that was replaced, and a purse that has read its total.
type Before struct {
	protocol.WasWindow
	Purse Purse
}

// Carry returns what the total of a window begins with. What others carry counts in their own totals: so a limit
// that goes and comes back does not count its permits twice.
func Carry(all []Before, in *protocol.Budget) (carried []Carried) {
	for i := range all {
		b := &all[i]
		n, last := b.issued(in.Since())
		if b.Purse.Withheld() != "" { // nobody knows
			n, last = in.Permits, b.Replaced
		}
		if n == 0 {
			continue
		}
		part := int64(0)
		if in.Sliding {
			part = in.PartAt(min(last, b.Replaced) - 1).Number
		}
		if i := slices.IndexFunc(carried, func(c Carried) bool { return c.Part == part }); i >= 0 {
			carried[i].N += n
			continue
		}
		carried = append(carried, Carried{n, part})
	}
	return carried
}

// issued returns how many permits of the total may have been issued after an instant, and by when all of them were.
func (b *Before) issued(since int64) (n, last int64) {
	t := b.Purse.Total()
	if !b.Sliding {
		return t.Out, b.End
	}
	for i, k := range t.Parts {
		if end := b.PartEnd(t.Newest - int64(i)); end > since && k > 0 {
			n, last = n+k, max(last, end)
		}
	}
	return n, last
}

// carried returns how many permits of other totals count.
func (t *Total) carried(of protocol.Part) (n int64) {
	for _, c := range t.Carried {
		if !of.ByParts() || c.Part > of.Number-of.Counted {
			n += c.N
		}
	}
	return n
}

// newest returns the newest part of time of which permits count.
func (t *Total) newest() int64 {
	newest := t.Newest
	for _, c := range t.Carried {
		newest = max(newest, c.Part)
	}
	return newest
}

// carry takes over what a rule says is carried, and reports whether it is other than before.
func (t *Total) carry(r *Rule) bool {
	if r.CarriedTo <= t.CarriedTo {
		return false
	}
	t.Carried, t.CarriedTo = r.Carried, r.CarriedTo
	return true
}
