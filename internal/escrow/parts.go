package escrow

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// This file counts the permits of a sliding limit by part of time. An instance issues what it took of a
// part only while that part runs by its clock. A take of a part is committed only if the last of.Counted
// parts hold at most the limit with it, later ones included. So any that many parts in a row do, and a
// window's length, wherever it begins, meets no more parts: protocol.Part. docs/proof/protocol.md,
// section 14.

// slack is how many parts more than those that count a total keeps: for a clock that is behind.
const slack = 2

// out returns how many permits are handed out that count: all, or those of the last parts.
func (t *Total) out(of protocol.Part) int64 {
	sum := t.carried(of)
	if !of.ByParts() {
		return t.Out + sum
	}
	for i, n := range t.Parts {
		if t.Newest-int64(i) > of.Number-of.Counted {
			sum += n
		}
	}
	return sum
}

// recent is how many transactions a total names. All instances write at the beginning of a part, and each wants to
// know whether what it gave back has arrived.
const recent = 32

// name notes the nonce of a transaction.
func (t *Total) name(nonce uint32) {
	t.Recent = slices.Concat([]uint32{nonce}, t.Recent[:min(len(t.Recent), recent-1)])
}

// named returns the nonce of a transaction, by its number; ok is false if it is not known.
func (t *Total) named(write int64) (nonce uint32, ok bool) {
	i := t.Writes - write
	if i < 0 || i >= int64(len(t.Recent)) {
		return 0, false
	}
	return t.Recent[i], true
}

// takes reports whether permits of a part may be taken at all: its clock is not so far behind that the total may keep
// less than counts in its part. Clocks within their bound are less than a part apart.
func (t *Total) takes(of protocol.Part) bool {
	return !of.ByParts() || len(t.Parts) == 0 || of.Number+slack >= t.Newest
}

// add counts n permits of a part that takes.
func (t *Total) add(n int64, of protocol.Part) {
	t.Out += n
	if n == 0 || !of.ByParts() {
		return
	}
	keep, later := int(of.Counted)+slack, of.Number-t.Newest
	switch {
	case len(t.Parts) == 0 || later >= int64(keep):
		t.Newest, t.Parts = of.Number, []int64{n}
		return
	case later > 0:
		t.Newest, t.Parts = of.Number, slices.Concat(make([]int64, later), t.Parts)
	default:
		t.Parts = slices.Clone(t.Parts)
	}
	i := int(t.Newest - of.Number)
	if i >= len(t.Parts) {
		t.Parts = append(t.Parts, make([]int64, i+1-len(t.Parts))...)
	}
	t.Parts[i] += n
	t.Parts = t.Parts[:min(len(t.Parts), keep)]
}

// giveBack takes permits out again that were taken of a part, and returns how many there were.
func (t *Total) giveBack(n int64, of protocol.Part) int64 {
	if !of.ByParts() {
		n = min(n, t.Out)
	} else {
		i := t.Newest - of.Number
		if i < 0 || i >= int64(len(t.Parts)) {
			return 0
		}
		n = min(n, t.Parts[i])
		t.Parts = slices.Clone(t.Parts)
		t.Parts[i] -= n
	}
	t.Out -= n
	t.Stated.At = min(t.Stated.At, t.Out) // of those taken before, the provider's rest knows nothing
	return n
}

// freed returns the first part in which n permits of a limit are left if nobody takes any until then, and
// of.Number if they are left now.
func (t *Total) freed(n, limit int64, of protocol.Part) int64 {
	for ; n <= limit && len(t.Parts)+len(t.Carried) > 0 && t.out(of)+n > limit; of.Number++ {
		if of.Number >= t.newest()+of.Counted {
			break
		}
	}
	return of.Number
}

// Freed returns the start of the first part in which n permits of a sliding limit are left if nobody takes
// any until then, as a number of parts from the one of Purse.Part on; 0 also where nothing is known.
func (p *Purse) Freed(n, limit int64) int64 {
	if p.total.From > p.Part.Number && p.Withheld() != "" { // else an operator has vouched for the total
		return p.total.From - p.Part.Number
	}
	return p.total.freed(n, limit, p.Part) - p.Part.Number
}

// In returns the purse of a sliding limit in a later part. What it has of the part before is for the caller
// to give back.
func (p *Purse) In(of protocol.Part) Purse {
	next := *p
	next.Part, next.Taken = of, 0
	return next
}

// Keep takes n permits of the part for good, of a limit that no other instance has. It is not for a purse
// that etcd knows.
func (p *Purse) Keep(n int64) { p.total.add(n, p.Part) }

// Free takes n of the permits out again that Keep took of a part.
func (p *Purse) Free(n int64, of protocol.Part) { p.total.giveBack(n, of) }

// Kept returns how many permits of a limit such a purse has left in its part.
func (p *Purse) Kept(limit int64) int64 { return max(0, limit-p.total.out(p.Part)) }
