package coordinator

import (
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The rule by which the pace, the total in force under an adaptive policy, follows what the
// instances report.
const (
	paceRefused = 1 // percent of the calls that a provider may refuse
	paceLeast   = 3 // calls refused: fewer are stray ones
	paceMargin  = 2 // percent that a cut takes beside the part that was refused
	paceUsed    = 80
	paceSame    = 3           // raises in a row of one size; the next ones are larger
	paceSpan    = time.Second // of evidence, at least
	pastEvery   = time.Minute
)

// nextPace returns the throttle after one whose pace was learned of so long ago; ok is
// false if the pace stays. Of what was refused, reports count that tell of the same pace. A
// pace that lowers nothing any more goes, or it would bind an operator's larger limit.
func nextPace(policy *quota.Policy, t protocol.Throttle, reports []protocol.Report, age time.Duration, now time.Time) (next protocol.Throttle, ok bool) {
	limits := policy.LimitsAt(now.UnixNano())
	e := evidenceOf(policy, &t, reports, limits)
	next = protocol.Throttle{Issued: e.issued, Refused: e.refused, Time: now, Past: t.Past, Asks: t.Asks}
	cut := e.refused >= paceLeast && 100*e.refused > paceRefused*e.issued
	raise := !cut && e.used && 2*e.matching >= e.known && age >= policy.Adaptive.Every
	lower := len(t.Limits) > 0
	if lower && raise {
		next.Raises = min(t.Raises+1, protocol.MaxRaises)
	}
	larger, whole := 1+max(0, next.Raises-1)/paceSame, true
	for _, l := range limits {
		was := t.Total(policy, l.Permits, l.Window)
		total, floor := was, protocol.PaceFloor(policy, l.Permits)
		if cut {
			total = max(floor, was-max(1, int64(float64(was)*e.part(policy))))
		} else if raise {
			total += min(l.Permits-was, larger*max(1, l.Permits*policy.Adaptive.Increase/100))
		}
		if total < was {
			next.Raises = 0
		}
		ok, whole = ok || total != was, whole && total == l.Permits
		next.Limits = append(next.Limits, quota.Limit{Permits: total, Window: l.Window})
	}
	if lower {
		if n := len(next.Past); n == 0 || t.Time.Sub(next.Past[n-1].Time) >= pastEvery {
			next.Past = append(slices.Clone(next.Past), protocol.PastPace{Limits: t.Limits, Time: t.Time})
		}
		next.Past = next.Past[max(0, len(next.Past)-protocol.MaxPastPaces):]
	}
	if whole {
		next = protocol.Throttle{Past: next.Past, Asks: t.Asks}
	}
	return next, ok || whole && lower
}

// evidence is what the reports say of a pace.
type evidence struct {
	known, matching int // reports that tell of a pace; of this one
	issued, refused int64
	used            bool // some instance uses its share
}

func evidenceOf(policy *quota.Policy, t *protocol.Throttle, reports []protocol.Report, limits []quota.Limit) (e evidence) {
	for i := range reports {
		r := &reports[i]
		span := time.Duration(r.PaceSpan) * time.Millisecond
		if r.PaceSpan == 0 {
			continue // of another version
		}
		if e.known++; r.PaceRevision != t.Revision || span < paceSpan || r.PaceIssued < 0 || r.PaceRefused < 0 {
			continue
		}
		e.matching++
		e.issued, e.refused = e.issued+r.PaceIssued, e.refused+r.PaceRefused
		if len(limits) == 0 || r.Share <= 0 {
			continue
		}
		part := float64(r.Share) / float64(max(1, t.Total(policy, limits[0].Permits, limits[0].Window)))
		for _, l := range limits {
			may := part * float64(t.Total(policy, l.Permits, l.Window)) * span.Seconds() / l.Window.Seconds()
			e.used = e.used || 100*float64(r.PaceIssued) >= paceUsed*may
		}
	}
	return e
}

// part is what a cut takes: no more than the policy says, nor than was refused, and a
// margin.
func (e *evidence) part(policy *quota.Policy) float64 {
	refused := float64(e.refused) / float64(max(1, e.issued, e.refused))
	return min(float64(policy.Adaptive.Decrease)/100, refused+float64(paceMargin)/100)
}
