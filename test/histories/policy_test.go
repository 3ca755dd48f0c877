package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

var totals = []int64{1, 2, 3, 5, 12, 40}

var lengths = []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond, time.Second}

// mostTransit is the longest guard of shaped policies.
const mostTransit = 40 * time.Millisecond

// budgetWindow is the window of budgets: one ends at budgetEdge after the beginning of a history. So does one of two or
// three times the length, which overrides may have.
const (
	budgetWindow = 263 * time.Second
	budgetEdge   = 6000 * ms
)

// drift is quota.Policy.DriftWindow of the history's policies.
func (p *plan) drift() time.Duration {
	if p.keyed { // an override may have such a window
		return quota.MaxWindow
	}
	if p.shape != quota.ShapeFixed {
		return 3*time.Second + mostTransit
	}
	return time.Second
}

// allowed returns the shape, or a bucket in place of one that no budget may have.
func (p *plan) allowed(s quota.Shape) quota.Shape {
	if s == quota.ShapeSliding && p.budget > 0 {
		return quota.ShapeBucket
	}
	return s
}

// newPolicy returns a policy that follows old, or the first one.
func (p *plan) newPolicy(r *rand.Rand, old *quota.Policy) quota.Policy {
	n := quota.Policy{Limits: p.limits(r, old), Outage: quota.OutageStop, Release: quota.Release{Shape: p.shape}}
	if p.kind == hold || p.kind == split || (p.kind == switches || p.kind == inflight) && r.IntN(2) == 0 {
		n.Outage = quota.OutageHold
	}
	if p.budget > 0 {
		n.Limits = append(n.Limits, quota.Limit{Permits: p.budget, Window: budgetWindow})
	}
	if p.kind == sliding {
		n.Limits = append(n.Limits, quota.Limit{Permits: 3 * totals[3+r.IntN(3)], Window: slidingWindow, Sliding: true})
	}
	if old != nil && (p.kind != timing || r.IntN(2) == 0) {
		n.Freshness, n.Settle, n.Guard, n.ClockError = old.Freshness, old.Settle, old.Guard, old.ClockError
	} else {
		p.time(r, &n)
	}
	if !p.plain {
		p.vary(r, &n)
	}
	if p.keyed && r.IntN(8) > 0 {
		n.Keys = p.keys(r, old)
	}
	p.fit(&n)
	return n.WithDefaults()
}

// time sets a policy's times.
func (p *plan) time(r *rand.Rand, n *quota.Policy) {
	n.Freshness, n.ClockError = time.Duration(150+r.IntN(500))*time.Millisecond, time.Duration(p.e)
	switch p.kind {
	case timing:
		n.Freshness = []time.Duration{150, 250, 500, 1000}[r.IntN(4)] * time.Millisecond
		n.ClockError += time.Duration(r.Int64N(2) * 20 * ms)
	case calm:
		n.Freshness = 400 * time.Millisecond
	}
	switch r.IntN(4) {
	case 0, 1:
		n.Guard = time.Duration(p.e)
	case 2:
		if !p.plain && p.kind != calm {
			n.Guard = n.ClockError
		}
	}
	n.Settle = quota.MinSettleFor(n.Freshness, n.ClockError, p.drift())
	if r.IntN(3) == 0 || p.kind == hold {
		n.Settle += time.Duration(r.Int64N(200 * ms))
	}
}

// limits are one limit or two, mostly of the old lengths.
func (p *plan) limits(r *rand.Rand, old *quota.Policy) (limits []quota.Limit) {
	total := func() int64 {
		if !p.plain && p.kind != calm && r.IntN(8) == 0 {
			return 0
		}
		return totals[r.IntN(len(totals))]
	}
	if p.kind == inflight {
		return p.flightLimits(r, old)
	}
	if old != nil && (p.kind == calm || r.IntN(3) > 0) {
		for _, l := range protocol.Short(old) {
			limits = append(limits, quota.Limit{Permits: total(), Window: l.Window})
		}
		return limits
	}
	n := 1
	if !p.plain && p.kind != calm {
		n += r.IntN(2)
	}
	for _, i := range r.Perm(len(lengths))[:n] {
		limits = append(limits, quota.Limit{Permits: total(), Window: lengths[i]})
	}
	slices.SortFunc(limits, func(a, b quota.Limit) int { return int(a.Window - b.Window) })
	return limits
}

// keys are the limits of keys: one or two, mostly of the old lengths and with the old owners.
// Fewer keys may be in use than there are.
func (p *plan) keys(r *rand.Rand, old *quota.Policy) (k quota.Keys) {
	k.Most = 2 + r.Int64N(int64(len(keyNames)))
	if k.Owners = r.Int64N(4); old != nil && len(old.Keys.Limits) > 0 && r.IntN(4) > 0 {
		k.Owners = old.Keys.Owners
	}
	if old != nil && len(old.Keys.Limits) > 0 && r.IntN(3) > 0 {
		k.Limits = slices.Clone(old.Keys.Limits)
	} else {
		for _, i := range r.Perm(len(keyLengths))[:1+r.IntN(2)] {
			k.Limits = append(k.Limits, quota.Limit{Window: keyLengths[i]})
		}
		k.Limits = p.withBudget(k.Limits)
	}
	for i := range k.Limits {
		k.Limits[i].Permits = p.ofKey(r, k.Limits[i].Window)
	}
	return k
}

// withBudget adds the long limit that all keys of a history have, or none has.
func (p *plan) withBudget(limits []quota.Limit) []quota.Limit {
	if p.keyBudget > 0 {
		limits = append(limits, quota.Limit{Window: budgetWindow})
	}
	return limits
}

// ofKey returns the permits of a key's limit.
func (p *plan) ofKey(r *rand.Rand, window time.Duration) int64 {
	if window >= budgetWindow {
		return p.keyBudget * (1 + r.Int64N(2))
	}
	return totals[r.IntN(len(totals))]
}

// keyNames are those of all keys, and keyLengths of their windows.
var (
	keyNames   = []string{"a", "b", "c", "d"}
	keyLengths = []time.Duration{300 * time.Millisecond, 500 * time.Millisecond, time.Second}
)

// vary sets the fields that a plain history leaves alone.
func (p *plan) vary(r *rand.Rand, n *quota.Policy) {
	if p.shape != quota.ShapeFixed {
		n.Shape = []quota.Shape{p.shape, p.shape, p.shape, p.shape, p.shape, p.shape, quota.ShapeFixed, []quota.Shape{quota.ShapeSliding, quota.ShapeBucket}[r.IntN(2)]}[r.IntN(8)]
		n.Shape = p.allowed(n.Shape)
	}
	if protocol.Shaped(n) {
		n.Guard = []time.Duration{0, mostTransit / 2, mostTransit}[r.IntN(3)]
		if n.Shape == quota.ShapeBucket {
			n.Burst = []int64{0, 1, 2, 5, 12}[r.IntN(5)]
		}
		if r.IntN(6) == 0 {
			n.WarmUp = time.Second
		}
	} else if p.kind != calm && r.IntN(6) == 0 {
		n.Pacing = quota.PacingEven
	}
	if p.budget > 0 {
		protocol.Long(n)[0].Permits = p.budget * (1 + r.Int64N(2))
	}
	step := 1 + r.IntN(20)
	n.MaxStep, n.BackoffMax = float64(step), time.Duration(step)*100*time.Millisecond
	n.Backoff = []quota.Backoff{quota.BackoffInstance, quota.BackoffFleet}[step%2]
	if step == 18 {
		n.Lend = "off"
	}
	if n.Critical = 0; p.kind != calm && step%3 == 0 && !protocol.Shaped(n) && n.Pacing != quota.PacingEven {
		n.Critical = int64(4 * step)
	}
	if len(protocol.Long(n)) > 0 && step%4 == 0 {
		n.Zone = "Asia/Kolkata"
	}
	n.Author, n.Reason = fmt.Sprintf("operator %d", r.IntN(9)), fmt.Sprintf("reason %d", r.IntN(9))
}

// fit makes a guard and a burst fit a policy's limits.
func (p *plan) fit(n *quota.Policy) {
	if protocol.Shaped(n) {
		n.Keys = quota.Keys{}
	}
	for _, l := range n.Keys.Limits {
		if 4*max(n.Guard, n.ClockError) >= l.Window {
			n.Guard = 0
		}
	}
	for _, l := range protocol.Short(n) {
		if l.Permits > 0 {
			n.Burst = min(n.Burst, l.Permits)
		}
		if !protocol.Shaped(n) && 4*max(n.Guard, n.ClockError) >= l.Window {
			n.Guard = 0
		}
	}
	if protocol.Shaped(n) && n.Guard > 0 && n.Validate() != nil {
		n.Guard = 0
	}
}

// change is a policy that follows another, and may be paused, begin later, or need a
// feature that nobody has.
func (w *world) change(r *rand.Rand, old *quota.Policy) *quota.Policy {
	n := w.newPolicy(r, old)
	switch r.IntN(20) {
	case 0, 1:
		n.Mode = quota.ModePause
	case 2:
		n.Requires = []string{"unheard-of"}
	case 3:
		n.From = wallTime(w.operatorsNow(r) + w.ahead(r, old))
	}
	return &n
}

// announced is a policy whose limits change later; nil if there is no room for that.
func (w *world) announced(r *rand.Rand, old *quota.Policy) *quota.Policy {
	if w.kind == inflight { // which announces nothing
		return nil
	}
	n, now := old.Clone(), w.operatorsNow(r)
	from := now + w.ahead(r, old)
	if !n.From.IsZero() {
		from = max(from, n.From.UnixNano()-epoch+1)
	}
	// A change that is in force may become the policy's own limits once the last window
	// before it has ended on every clock.
	if k := len(old.Next); k > 0 && old.Next[k-1].From.Before(wallTime(now-1000*ms-2*w.e)) {
		n.Limits = slices.Concat(old.Next[k-1].Limits, protocol.Long(old))
	} else if k > 0 && w.kind == calm {
		return nil
	}
	n.Next = []quota.LimitChange{{From: wallTime(from), Limits: w.limits(r, old)}}
	n.Mode, n.Requires = "", nil
	w.fit(&n)
	return &n
}

// operatorsNow is what an operator takes for now. Nothing is promised of operators'
// clocks.
func (w *world) operatorsNow(r *rand.Rand) int64 {
	if w.kind == calm || r.IntN(4) > 0 {
		return w.now()
	}
	return w.now() + []int64{5000 * ms, 120_000 * ms}[r.IntN(2)]*(2*r.Int64N(2)-1) + r.Int64N(200*ms)
}

// ahead is how far ahead something is announced: mostly enough, not always.
func (w *world) ahead(r *rand.Rand, p *quota.Policy) int64 {
	if w.kind != calm && r.IntN(4) == 0 {
		return r.Int64N(int64(p.Settle))
	}
	return int64(p.Settle) + 2*w.e + 400*ms + r.Int64N(200*ms)
}

func wallTime(t int64) time.Time { return time.Unix(0, epoch+t) }
