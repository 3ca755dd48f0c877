package escrow

import (
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Resumes returns when something of the limit is handed out again that Withheld says is not, if no operator does
// anything: in corrected wall time, the start of a window or of a part of time; 0 if that is not known. Of a limit in flight,
// whose parts begin at other instants at each instance, it is the latest that this may be, and each instance says the same.
func (p *Purse) Resumes(b *protocol.Budget) int64 {
	switch why := p.Withheld(); {
	case why == "" || b.ByParts() && p.total.Withheld == unreadable:
		return 0
	case !b.ByParts():
		return b.End
	case p.revision != 0 && p.total.From > p.Part.Number:
		return b.Begun(p.total.From - p.Part.Number)
	case p.revision != 0: // whoever takes next writes so
		return b.Begun(p.Part.Counted + 1)
	}
	return p.verdict.Resumes(b)
}

// Resumes is as Purse.Resumes, of a window without a total.
func (v *Verdict) Resumes(b *protocol.Budget) int64 {
	switch {
	case v.Lost == "":
		return 0
	case !b.ByParts():
		return b.End
	case v.Lost == badMark: // it stays
		return 0
	}
	part, before := b.End-b.Start, v.before
	if before == 0 { // whoever takes next writes a newer mark
		before = b.End
	}
	if b.InFlight { // the first part that goes on begins less than a part after the earliest instant for one
		return before + b.Start - b.Since() + part
	}
	return b.After((before - b.Since() + part - 1) / part)
}

// Back returns when nothing counts any more of what was handed out until now, in wall time: of a limit that counts by
// parts of time, when the newest part counts no more by any clock of which something is out.
func (t *Total) Back(b *protocol.Budget) int64 {
	if !b.ByParts() {
		return b.End
	}
	newest := b.Part().Number
	if i := slices.IndexFunc(t.Parts, func(n int64) bool { return n > 0 }); i >= 0 {
		newest = t.Newest - int64(i)
	}
	for _, c := range t.Carried {
		newest = max(newest, c.Part)
	}
	return b.Until() + b.After(newest-b.Part().Number) - b.Start
}
