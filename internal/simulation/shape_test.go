package simulation

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is limits of other shapes than fixed windows: which policies have
// them, and their judges, which look at spans of true time that begin with any
// permit.

// forming is which shapes a history's policies have. It draws by itself, so that
// histories of fixed windows stay what they are.
type forming struct {
	shape   quota.Shape // of most policies
	r       *rand.Rand
	guards  *rand.Rand
	transit bool // shaped policies have guards
}

func newForming(seed uint64, kind Kind, m *Mutant) forming {
	f := forming{shape: quota.ShapeFixed, r: rand.New(rand.NewPCG(seed, 13)), guards: rand.New(rand.NewPCG(seed, 14))}
	f.transit = f.guards.IntN(2) == 0
	switch n := f.r.IntN(8); {
	case m != nil && m.Shape != "":
		f.shape = m.Shape
	case m != nil || kind != Stop && kind != Timing && kind != Restore && kind != Hold && kind != Split:
	case n < 2:
		f.shape = quota.ShapeSliding
	case n < 4:
		f.shape = quota.ShapeBucket
	}
	return f
}

// drift is quota.Policy.DriftWindow of the history's policies.
func (f *forming) drift() time.Duration {
	if f.shape == quota.ShapeFixed {
		return time.Second
	}
	return 3*time.Second + mostTransit
}

// mostTransit is the longest guard of shaped policies.
const mostTransit = 40 * time.Millisecond

// formed sets a policy's shape: now and then another one than before.
func (f *forming) formed(p *quota.Policy) *quota.Policy {
	p.Shape, p.Burst, p.WarmUp = "", 0, 0
	if f.shape == quota.ShapeFixed {
		return p
	}
	p.Shape = f.shape
	switch f.r.IntN(8) {
	case 0:
		p.Shape = ""
		return p
	case 1:
		p.Shape = []quota.Shape{quota.ShapeSliding, quota.ShapeBucket}[f.r.IntN(2)]
	}
	p.Guard, p.GuardAuto, p.Pacing = 0, false, ""
	if p.Shape == quota.ShapeBucket {
		p.Burst = []int64{0, 1, 2, 5, 12}[f.r.IntN(5)]
	}
	if f.r.IntN(6) == 0 {
		p.WarmUp = time.Second
	}
	if f.transit {
		p.Guard = []time.Duration{0, mostTransit / 2, mostTransit, mostTransit, mostTransit}[f.guards.IntN(5)]
	}
	return p
}

// fitted lowers a policy's burst to its limits, and leaves a guard out that would
// leave nothing of the burst.
func fitted(p *quota.Policy) {
	for _, l := range p.Limits {
		if l.Permits > 0 {
			p.Burst = min(p.Burst, l.Permits)
		}
	}
	if protocol.Shaped(p) && p.Guard > 0 && p.Validate() != nil {
		p.Guard = 0
	}
}

// formerly reports whether a state's policy has the shape.
func (w *world) formerly(s int, shape quota.Shape) bool {
	if s < 0 {
		return false
	}
	p := w.etcd.states[s].view.Policy
	return p != nil && p.Shape == shape
}

// lot is permits issued at once, in the order of true time.
type lot struct {
	at, n int64
	id    string
}

// judgeSpans judges all spans of true time: each that begins with a permit, and
// whose states have the shape.
func (w *world) judgeSpans(r *Result) {
	if !slices.ContainsFunc(w.etcd.states, func(s state) bool { return s.view.Policy != nil && protocol.Shaped(s.view.Policy) }) {
		return
	}
	var lots []lot
	for _, h := range w.hosts {
		for _, g := range h.grants {
			if !(w.kind == Split && g.stale) && g.permits > 0 {
				lots = append(lots, lot{g.at, g.permits, g.id})
			}
		}
	}
	slices.SortFunc(lots, func(a, b lot) int { return cmp.Compare(a.at, b.at) })
	for _, l := range w.lengths {
		for i := range lots {
			if v := w.judgeSliding(l, lots[i:]); v != nil {
				r.Over = append(r.Over, *v)
			}
			if v := w.judgeBucket(l, lots[i:]); v != nil {
				r.Over = append(r.Over, *v)
			}
		}
	}
}

// around returns the states that every permit of a span which begins at the true
// time a may be bound by, as docs/protocol.md section 10 has it, and the window
// by which they are bound. ok is false where nothing is promised.
func (w *world) around(l time.Duration, a int64) (from, to int, win quota.Window, ok bool) {
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i := range w.etcd.states {
		if p := w.etcd.states[i].view.Policy; p != nil {
			lowest, highest = min(lowest, int64(p.Freshness)), max(highest, int64(p.Settle))
		}
	}
	if w.kind == Timing && w.unset {
		highest = max(highest, int64(quota.DefaultSettle))
	}
	win = quota.WindowAt(l, epoch+a-w.e)
	start := win.Start() - epoch
	switch w.kind {
	case Hold:
		return 0, len(w.etcd.states) - 1, win, true
	case Timing:
		return w.stateAt(start - highest - 2*w.e - 40*ms), w.stateAt(a - lowest + w.e), win, true
	}
	lo := start + w.e - (highest-3*int64(l)/protocol.DriftBound)*protocol.DriftBound/(protocol.DriftBound+1)
	hi := a - lowest*protocol.DriftBound/(protocol.DriftBound-1)
	from, to = w.stateAt(lo), w.stateAt(hi)
	for s := max(0, from); s <= to; s++ {
		if w.etcd.states[s].lost {
			return 0, 0, win, false // some went by what a restore took back
		}
	}
	return from, to, win, true
}

// transit returns the guard that all states from one to another have: for so much
// longer than a window a span is judged, and whatever a call takes to the provider
// within it changes nothing.
func (w *world) transit(from, to int) int64 {
	least := int64(mostTransit)
	for s := max(0, from); s <= to; s++ {
		if p := w.etcd.states[s].view.Policy; p != nil {
			least = min(least, int64(p.Guard))
		}
	}
	return least
}

// judgeSliding judges the span of a window's length, and the transit, that begins
// with the first lot. Where the timing is one and the same, every state around
// binds it; else one does.
func (w *world) judgeSliding(l time.Duration, lots []lot) *Violation {
	a := lots[0].at
	from, to, win, ok := w.around(l, a)
	span := int64(l) + w.transit(from, w.stateAt(a+int64(l)+int64(mostTransit)))
	if !ok || !w.keeps(from, w.stateAt(a+span), win, a+span, quota.ShapeSliding) {
		return nil
	}
	var sum int64
	part := map[string]int64{}
	for _, x := range lots {
		if x.at-a > span {
			break
		}
		sum += x.n
		part[x.id] += x.n
	}
	one := w.kind == Timing || w.kind == Hold
	var worst *Violation
	for s := from; s <= to; s++ {
		v := w.slidingAgainst(s, win, a, sum, part)
		if v == nil && one {
			return nil
		}
		if v != nil && (worst == nil || v.Bound > worst.Bound) {
			worst = v
		}
	}
	return worst
}

// keeps reports whether all states from one to another have the shape, and limit
// the windows from win to that of the true time until. Else nothing is promised:
// who joins after a change knows nothing of the shape before it.
func (w *world) keeps(from, to int, win quota.Window, until int64, shape quota.Shape) bool {
	last := quota.WindowAt(win.Length, epoch+until+w.e).Index
	for s := from; s <= to; s++ {
		for x := win; x.Index <= last; x.Index++ {
			if !w.formerly(s, shape) || w.total(s, x) == unlimited {
				return false
			}
		}
	}
	return true
}

func (w *world) slidingAgainst(s int, win quota.Window, a, sum int64, part map[string]int64) *Violation {
	total := w.total(s, win)
	if !w.formerly(s, quota.ShapeSliding) || total == unlimited {
		return nil
	}
	over := &Violation{Window: win, Span: a + 1, Issued: sum, Bound: total}
	if sum > total {
		return over
	}
	_, shares, _ := share.Of(&w.etcd.states[s].view, win)
	for id, n := range part {
		if n > shares[id] && !w.trick(SameID) {
			over.Issued, over.Bound, over.Actor = n, shares[id], id
			return over
		}
	}
	return nil
}

// judgeBucket judges the spans of up to two windows' length that begin with the
// first lot: they hold at most what the instances of a state around its beginning
// may issue at once, and what accrues by the largest total that is in force on
// the way.
func (w *world) judgeBucket(l time.Duration, lots []lot) *Violation {
	a := lots[0].at
	from, to, win, ok := w.around(l, a)
	if !ok {
		return nil
	}
	most, burst := int64(0), int64(math.MaxInt64)
	if w.kind == Timing || w.kind == Hold {
		burst = 0
	}
	if !w.keeps(from, to, win, a, quota.ShapeBucket) {
		return nil
	}
	for s := from; s <= to; s++ {
		if b := w.burstOf(s, win); w.kind == Timing || w.kind == Hold {
			burst = max(burst, b)
		} else {
			burst = min(burst, b)
		}
	}
	var sum int64
	for _, x := range lots {
		if x.at-a > 2*int64(l) {
			break
		}
		now := w.stateAt(x.at)
		if _, _, _, ok := w.around(l, x.at); !ok || !w.keeps(from, now, win, x.at, quota.ShapeBucket) {
			return nil
		}
		for s := from; s <= now; s++ {
			for v := win; v.Start()-epoch <= x.at+w.e; v.Index++ {
				most = max(most, w.total(s, v))
			}
		}
		sum += x.n
		if bound := burst + int64(float64(most)*float64(x.at-a)/float64(l)+1e-6); sum > bound {
			return &Violation{Window: win, Span: a + 1, Until: x.at, Issued: sum, Bound: bound}
		}
	}
	return nil
}

// burstOf is what the instances of a state may issue at once, together.
func (w *world) burstOf(s int, win quota.Window) (sum int64) {
	view := &w.etcd.states[s].view
	total, shares, _ := share.Of(view, win)
	for _, n := range shares {
		if n > 0 {
			sum += max(1, n*protocol.BurstOf(view.Policy, quota.Limit{Permits: total, Window: win.Length})/total)
		}
	}
	return sum
}
