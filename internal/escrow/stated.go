package escrow

import (
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
)

// Stated is the rest of a window by the provider's own count, as a response to one of the calls said
// it: others may use the same account. It only lowers what is handed out, so it needs no proof. The
// provider does not know yet of permits that were taken and whose calls have not arrived; so what is
// handed out exceeds its count by at most as many.
type Stated struct {
	// Left is how many more permits the provider allows, where Limit is in force. It may be negative: permits that
	// instances had in hand come on top.
	Left int64 `json:"left"`
	// At is Total.Out when this was written, or the least that it was since: what was taken before that and
	// is given back is taken again out of the rest.
	At int64 `json:"at"`
	// Until is when the provider begins to count anew, in corrected wall time: this says nothing of
	// later. 0: nothing was stated.
	Until int64 `json:"until"`
	// Of is the provider's limit of which Left is the rest, as it was named, and Limit our own when it was. Of is 0
	// if none was named: then another limit of ours changes nothing.
	Of    int64 `json:"of,omitempty"`
	Limit int64 `json:"limit,omitempty"`
}

// Rest returns Left where our limit is another by now. What was used elsewhere stays used: whoever raises or lowers our
// limit beyond the provider's does it because the provider has. Between the provider's limit and Limit nothing follows.
func (s Stated) Rest(limit int64) int64 {
	switch {
	case s.Of == 0:
	case limit > max(s.Of, s.Limit):
		return s.Left + limit - max(s.Of, s.Limit)
	case limit < s.Of && s.Of <= s.Limit:
		return s.Left + limit - s.Of
	}
	return s.Left
}

// Renews reports whether a rest counts also if it is higher than the one known: it is of the limit that is in force, and
// the one known is of another limit in the same window of the provider, which has changed its limit since. Otherwise a
// higher rest says nothing, since answers come out of order.
func (s Stated) Renews(known Stated, limit int64) bool {
	apart := max(s.Until-known.Until, known.Until-s.Until)
	return s.Of == limit && known.Of != 0 && known.Of != limit && apart <= untilApart
}

// untilApart is by how much two answers may differ about when the same window of the provider ends: it is often told as
// a number of seconds from now.
const untilApart = int64(time.Minute)

// left returns how many permits are left of a limit: by the total, and by what the provider has stated.
func (t *Total) left(limit int64, of protocol.Part) int64 {
	if !t.takes(of) {
		return 0
	}
	left := max(0, limit-t.out(of))
	if t.Stated.Until != 0 {
		left = min(left, max(0, t.Stated.Rest(limit)-(t.Out-t.Stated.At)))
	}
	return left
}

// Counted returns the total after an operator has said how many permits of a limit the provider counts as used, where
// nothing is withheld. What was handed out stays as it is, so a later count may be lower; until is when the count is
// over. cluster and of are as in Corrected.
func (t Total) Counted(used, limit, until int64, of protocol.Part, cluster uint64) Total {
	t.Stated = Stated{Left: limit - used, At: t.Out, Until: until, Of: limit, Limit: limit}
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

// forget drops what the provider has stated if its time is over at an instant by the wall clock.
func (t *Total) forget(now int64) {
	if t.Stated.Until <= now {
		t.Stated = Stated{}
	}
}

// Forget drops what the provider has stated if its time is over at an instant by the wall clock, as whoever takes permits
// then does: it is for a purse that only shows what is left.
func (p *Purse) Forget(now int64) { p.total.forget(now) }

// Binds reports whether fewer permits are left of a limit because of what the provider has stated.
func (p *Purse) Binds(limit int64) bool {
	return p.total.left(limit, p.Part) < max(0, limit-p.total.out(p.Part))
}

// heeded reports whether a rest that the provider states is worth writing where left are left of a limit, with what is
// known: it is lower by over one in a hundred, the first to say that nothing is left, or Renews what is known.
func (s Stated) heeded(known Stated, left, limit int64) bool {
	rest := s.Rest(limit)
	return s.Until != 0 && (left-rest > limit/100 || rest <= 0 && left > 0 || s.Renews(known, limit))
}

// Heeds reports whether a rest that the provider states is worth telling etcd, as far as is known.
func (p *Purse) Heeds(s Stated, limit int64) bool {
	return p.verdict == nil || s.heeded(p.total.Stated, p.Left(limit), limit)
}

// state notes what the provider has stated, at an instant by the wall clock. It returns whether the total
// has changed by it.
func (t *Total) state(s Stated, limit int64, of protocol.Part, now int64) (changed bool) {
	t.forget(now)
	if s.Until <= now || !s.heeded(t.Stated, t.left(limit, of), limit) {
		return false
	}
	s.At = t.Out
	t.Stated = s
	return true
}
