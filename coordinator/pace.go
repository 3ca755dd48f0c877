package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Under an adaptive policy the oldest live instance collects all reports and writes the
// pace; the next oldest do too, each less often than the one before. Two writers at once
// do no harm: each writes on the condition that the pace is the one that its evidence is
// about.
const (
	paceRefused = 1 // percent of the calls that a provider may refuse
	paceLeast   = 3 // calls refused: fewer are stray ones
	paceMargin  = 2 // percent that a cut takes beside the part that was refused
	paceUsed    = 80
	paceSame    = 3           // raises in a row of one size; the next ones are larger
	paceSpan    = time.Second // of evidence, at least
	pastEvery   = time.Minute
)

// paceLocked notes the view's pace.
func (p *membership) paceLocked(pace *protocol.Pace) {
	p.paced, p.pacedAt = pace, p.s.o.Clock.Mono()
}

// pace writes another pace, if it is this instance's turn and there is reason.
func (p *membership) pace(ctx context.Context, last *reporting, now int64) {
	p.mu.Lock()
	w := p.writerLocked(view.Pace)
	policy, pace, age := p.policy, p.paced, time.Duration(now-p.pacedAt)
	p.mu.Unlock()
	if last.paced == 0 && w.rank > deputies {
		last.paced = now // not all of a fleet that starts read at once
	}
	if !w.may || last.paced != 0 && time.Duration(now-last.paced) < (1+4*w.rank)*dividePause(len(w.ids)) {
		return
	}
	last.paced = now
	var next *protocol.Pace
	if policy != nil && policy.Adaptive.Floor > 0 {
		var reports []protocol.Report
		if _, err := p.reportsOf(ctx, w.ids, func(_ string, r *protocol.Report) { reports = append(reports, *r) }); err != nil {
			return
		}
		var changes bool
		next, changes = nextPace(policy, pace, reports, age, time.Unix(0, p.s.o.Clock.Wall()).UTC())
		if broken := pace == nil && w.revision != 0; !changes && !broken {
			p.mu.Lock()
			p.unpaced = nil // there is nothing to write
			p.mu.Unlock()
			return
		}
	}
	var value any
	if next != nil {
		next.Author, value = w.id, next
	}
	t, err := w.replace(ctx, p.s.kv, p.s.keys.Pace(p.provider), w.revision, value) // if that fails it is tried again
	if begun := pace == nil; err == nil && t.Succeeded && begun != (next == nil) {
		if begun {
			p.s.o.Logger.Warn("the provider takes less: the total in force is lower than the limit", "provider", p.provider,
				"pace", quota.FormatLimits(next.Limits), "issued", next.Issued, "refused", next.Refused)
		} else {
			p.s.o.Logger.Info("the limit is in force again", "provider", p.provider)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unpaced = p.denied(classify(ctx, "lower or raise the total of "+p.provider, err)) // the next proof tells it
}

// nextPace returns the pace after one that was learned of so long ago, nil where the
// policy's limits are in force; ok is false if it stays. Of what was refused, reports
// count that tell of the same pace. A pace that lowers nothing any more goes, or it would
// bind an operator's larger limit.
func nextPace(policy *quota.Policy, pace *protocol.Pace, reports []protocol.Report, age time.Duration, now time.Time) (next *protocol.Pace, ok bool) {
	limits := protocol.LimitsAt(policy, now.UnixNano())
	e := evidenceOf(policy, pace, reports, limits)
	next = &protocol.Pace{Issued: e.issued, Refused: e.refused, Time: now}
	cut := e.refused >= paceLeast && 100*e.refused > paceRefused*e.issued
	raise := !cut && e.used && 2*e.matching >= e.told && age >= policy.Adaptive.Every
	if pace != nil && raise {
		next.Raises = min(pace.Raises+1, protocol.MaxRaises)
	}
	larger, whole := 1+max(0, next.Raises-1)/paceSame, true
	for _, l := range limits {
		was := pace.Total(policy, l.Permits, l.Window)
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
	if pace != nil {
		next.Past = pace.Past
		if n := len(next.Past); n == 0 || pace.Time.Sub(next.Past[n-1].Time) >= pastEvery {
			next.Past = append(slices.Clone(next.Past), protocol.PastPace{Limits: pace.Limits, Time: pace.Time})
		}
		next.Past = next.Past[max(0, len(next.Past)-protocol.MaxPastPaces):]
	}
	if whole {
		next = nil
	}
	return next, ok || whole && pace != nil
}

// evidence is what the reports say of a pace.
type evidence struct {
	told, matching  int // reports that tell of a pace; of this one
	issued, refused int64
	used            bool // some instance uses its share
}

func evidenceOf(policy *quota.Policy, pace *protocol.Pace, reports []protocol.Report, limits []quota.Limit) (e evidence) {
	revision := int64(0)
	if pace != nil {
		revision = pace.Revision
	}
	for i := range reports {
		r := &reports[i]
		span := time.Duration(r.PaceSpan) * time.Millisecond
		if r.PaceSpan == 0 {
			continue // of another version
		}
		if e.told++; r.PaceRevision != revision || span < paceSpan || r.PaceIssued < 0 || r.PaceRefused < 0 {
			continue
		}
		e.matching++
		e.issued, e.refused = e.issued+r.PaceIssued, e.refused+r.PaceRefused
		if len(limits) == 0 || r.Share <= 0 {
			continue
		}
		part := float64(r.Share) / float64(max(1, pace.Total(policy, limits[0].Permits, limits[0].Window)))
		for _, l := range limits {
			may := part * float64(pace.Total(policy, l.Permits, l.Window)) * span.Seconds() / l.Window.Seconds()
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
