package escrow

import "github.com/quotient-limiter/quotient/internal/protocol"

// Resumes returns when something of the limit is handed out again that Withheld says is not, if no operator does
// anything: in corrected wall time, the start of a window or of a part of time; 0 if that is not known.
func (p *Purse) Resumes(b *protocol.Budget) int64 {
	switch why := p.Withheld(); {
	case why == "" || b.ByParts() && p.total.Withheld == unreadable:
		return 0
	case !b.ByParts():
		return b.End
	case p.revision != 0 && p.total.From > p.Part.Number:
		return b.After(p.total.From - p.Part.Number)
	case p.revision != 0: // whoever takes next writes so
		return b.After(p.Part.Counted + 1)
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
	case v.before == 0: // a newer mark is written first
		return 0
	}
	part := b.End - b.Start
	return b.After((v.before - b.Since() + part - 1) / part)
}
