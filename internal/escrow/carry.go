package escrow

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file carries counts on where an operator changes the length, the phase or the zone of a long limit, or whether
// it slides: its windows have other totals then. The total of a new window that overlaps old ones begins with what
// these have handed out. They only fall meanwhile: protocol.Was. docs/proof/protocol.md, section 14.

// Carried are permits that were handed out by the totals of other limits.
type Carried struct {
	N int64 `json:"n"`
	// Part is of a limit that counts by parts of time alone: the last part in which some of them may have been issued.
	// Of a limit in flight it is the last of so many that count as those of the other limit do.
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
		if in.InFlight {
			carried = b.carryCalls(carried, in)
			continue
		}
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
		carried = addCarried(carried, Carried{n, part})
	}
	return carried
}

func addCarried(all []Carried, c Carried) []Carried {
	if i := slices.IndexFunc(all, func(o Carried) bool { return o.Part == c.Part }); i >= 0 {
		all[i].N += c.N
		return all
	}
	return append(all, c)
}

// carryCalls adds what the total of another limit in flight has. Each of its parts counts until as many parts of its
// own length have ended as by its own limit.
func (b *Before) carryCalls(carried []Carried, in *protocol.Budget) []Carried {
	of := in.Part()
	add := func(n, until int64) {
		c := Carried{n, in.PartAt(until-1).Number + 1 - of.Counted}
		if n > 0 && c.counts(of) {
			carried = addCarried(carried, c)
		}
	}
	t := b.Purse.Total()
	if b.Purse.Withheld() != "" { // nobody knows
		add(in.Permits, b.Replaced+(b.Purse.Part.Counted+1)*(b.End-b.Start))
		return carried
	}
	for i, n := range t.Parts {
		add(n, b.PartEnd(t.Newest-int64(i)+b.Purse.Part.Counted-1))
	}
	return carried
}

// counts reports whether it counts in a part.
func (c Carried) counts(of protocol.Part) bool {
	return !of.ByParts() || c.Part > of.Number-of.Counted
}

// Carries returns how many permits of other limits the newest total known counts.
func (p *Purse) Carries() int64 { return p.total.carried(p.Part) }

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
		if c.counts(of) {
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

// carry takes over what a rule says is carried, and reports whether it is other than before. What a limit in flight
// carries is read again and again, as long as some of it counts: calls end.
func (t *Total) carry(r *Rule, inFlight bool) bool {
	again := inFlight && r.CarriedTo == t.CarriedTo && r.CarriedTo != 0 && !slices.Equal(r.Carried, t.Carried)
	if r.CarriedTo <= t.CarriedTo && !again {
		return false
	}
	t.Carried, t.CarriedTo = r.Carried, r.CarriedTo
	return true
}
