package escrow

import "slices"

// This file is about writes of a total by parts that etcd has not answered. Each has a name in Total.Recent. So the next
// total that is known tells what became of it: if it was committed, the permits that it took are this instance's; if not,
// those that it was to give back are still. docs/proof/protocol.md, section 14.

// unsettled has the writes that are not decided, and the permits that are this instance's by those that are. It is nil in
// most purses, and never changed: copies of a purse share it.
type unsettled struct {
	writes   []unanswered
	regained []Back
}

// unanswered is a write that was sent.
type unanswered struct {
	number int64  // Total.Writes
	nonce  uint32 // its name in Total.Recent
	took   Back   // what it took, of the part that ran
	back   Back   // what it gave back
}

// mostUnanswered bounds the writes that a purse remembers. Later ones are forgotten: while etcd is away none is committed.
const mostUnanswered = 8

// Unanswered notes that etcd has not answered the write of next. Next has returned it with n, for back. It is nothing if
// next has no name.
func (p *Purse) Unanswered(next Total, n int64, back Back) {
	nonce, _ := next.named(next.Writes)
	var u unsettled
	if p.unsettled != nil {
		u = *p.unsettled
	}
	if nonce == 0 || len(u.writes) == mostUnanswered {
		return
	}
	u.writes = append(slices.Clip(u.writes), unanswered{next.Writes, nonce, Back{max(0, n), p.Part}, back})
	p.unsettled = &u
}

// settle decides the unanswered writes that the newest total tells of. It never does after an operator has corrected the
// total, by a write without a name: then it counts what instances had in hand by their reports, which lack these permits.
func (p *Purse) settle() {
	if p.unsettled == nil {
		return
	}
	t, u := &p.total, unsettled{regained: slices.Clip(p.unsettled.regained)}
	for _, w := range p.unsettled.writes {
		nonce, known := t.named(w.number)
		switch {
		case t.Writes < w.number: // it may be committed yet
			u.writes = append(u.writes, w)
		case !known || t.Withheld != "" || slices.Contains(t.Recent[:t.Writes-w.number+1], 0):
		case nonce == w.nonce:
			u.regained = addBack(u.regained, w.took)
		default: // each write is on the condition of the total before: so this one never is committed
			u.regained = addBack(u.regained, w.back)
		}
	}
	p.unsettled = &u
}

func addBack(all []Back, b Back) []Back {
	if b.N > 0 {
		all = append(all, b)
	}
	return all
}

// Regained returns the permits that are this instance's by writes that were decided late, with the part that each is of.
// From then on they are the caller's to count.
func (p *Purse) Regained() (all []Back) {
	if u := p.unsettled; u != nil {
		all = u.regained
		p.unsettled = nil
		if len(u.writes) > 0 {
			p.unsettled = &unsettled{writes: u.writes}
		}
	}
	return all
}

// Settles has p go on with the unanswered writes of another purse in place of its own.
func (p *Purse) Settles(o Purse) { p.unsettled = o.unsettled }
