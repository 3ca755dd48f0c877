package escrow

import "github.com/quotient-limiter/quotient/internal/protocol"

// Stated is the rest of a window by the provider's own count, as a response to one of the calls said
// it: others may use the same account. It only lowers what is handed out, so it needs no proof. The
// provider does not know yet of permits that were taken and whose calls have not arrived; so what is
// handed out exceeds its count by at most as many.
type Stated struct {
	// Left is how many more permits the provider allows.
	Left int64 `json:"left"`
	// At is Total.Out when this was written, or the least that it was since: what was taken before that and
	// is given back is taken again out of the rest.
	At int64 `json:"at"`
	// Until is when the provider begins to count anew, in corrected wall time: this says nothing of
	// later. 0: nothing was stated.
	Until int64 `json:"until"`
}

// left returns how many permits are left of a limit: by the total, and by what the provider has stated.
func (t *Total) left(limit int64, of protocol.Part) int64 {
	if !t.takes(of) {
		return 0
	}
	left := max(0, limit-t.out(of))
	if t.Stated.Until != 0 {
		left = min(left, max(0, t.Stated.Left-(t.Out-t.Stated.At)))
	}
	return left
}

// Counted returns the total after an operator has said how many permits of a limit the provider counts as used, where
// nothing is withheld. What was handed out stays as it is, so a later count may be lower; until is when the count is
// over. cluster and of are as in Corrected.
func (t Total) Counted(used, limit, until int64, of protocol.Part, cluster uint64) Total {
	t.Stated = Stated{Left: max(0, limit-used), At: t.Out, Until: until}
	t.Withheld, t.Cluster = "", cluster
	if of.ByParts() {
		t.name(0)
	}
	if of.Number < t.From { // an operator has vouched for the total
		t.From = 0
	}
	t.Writes++ // as in Corrected
	return t
}

// Binds reports whether fewer permits are left of a limit because of what the provider has stated.
func (p *Purse) Binds(limit int64) bool {
	return p.total.left(limit, p.Part) < max(0, limit-p.total.out(p.Part))
}

// Lowers reports whether a rest that the provider states is worth writing where left are left of a limit:
// it is lower by over one in a hundred, or it is the first to say that nothing is left.
func (s Stated) Lowers(left, limit int64) bool {
	return s.Until != 0 && (left-s.Left > limit/100 || s.Left == 0 && left > 0)
}

// state notes what the provider has stated, at an instant by the wall clock. It returns whether the total
// has changed by it.
func (t *Total) state(s Stated, limit int64, of protocol.Part, now int64) (changed bool) {
	if t.Stated.Until <= now {
		t.Stated = Stated{}
	}
	if s.Until <= now || !s.Lowers(t.left(limit, of), limit) {
		return false
	}
	s.At = t.Out
	t.Stated = s
	return true
}
