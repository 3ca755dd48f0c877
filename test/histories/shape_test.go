package histories

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

// This file judges limits of other shapes than fixed windows: all spans of true time that
// begin with a permit, and whose states have the shape (docs/proof/protocol.md, section 10).

// shapedBy reports whether a state's policy has the shape.
func (f *fleet) shapedBy(s int, shape quota.Shape) bool {
	if s < 0 {
		return false
	}
	p := f.line[s].Policy
	return p != nil && p.Shape == shape
}

func (f *fleet) judgeSpans() *violation {
	if !slices.ContainsFunc(f.line, func(s trace.View) bool { return s.Policy != nil && protocol.Shaped(s.Policy) }) {
		return nil
	}
	var grants []*grant
	for _, g := range f.grants {
		if g.permits > 0 && !(f.isHeld(g) && f.kind != hold) {
			grants = append(grants, g)
		}
	}
	slices.SortFunc(grants, func(a, b *grant) int { return cmp.Compare(a.at, b.at) })
	for _, l := range f.lengths {
		for i := range grants {
			f.stats.spans++
			if v := cmp.Or(f.judgeSliding(l, grants[i:]), f.judgeBucket(l, grants[i:])); v != nil {
				return v
			}
		}
	}
	return nil
}

// around returns the states that every permit of a span which begins at the true time a
// may be bound by, and the window by which they are bound. ok is false where nothing is
// promised.
func (f *fleet) around(l time.Duration, a int64) (from, to int, win quota.Window, ok bool) {
	freshness, settle := f.times()
	win = quota.WindowAt(l, epoch+a-f.e)
	start := win.Start() - epoch
	switch f.kind {
	case hold:
		return 0, len(f.line) - 1, win, true
	case timing:
		return f.newestAt(start - settle - 2*f.e - 40*ms), f.newestAt(a - freshness + f.e), win, true
	}
	from, to = f.decisive(start, a+f.e, freshness, settle-3*int64(l)/protocol.DriftBound)
	for s := max(0, from); s <= to; s++ {
		if f.line[s].Lost > 0 {
			return 0, 0, win, false // some went by what a restore took back
		}
	}
	return from, to, win, true
}

// oneBinds says that one state around a span binds it, rather than all of them.
func (f *fleet) oneBinds() bool { return f.kind == timing || f.kind == hold }

// transit returns the guard that all states from one to another have: for so much longer
// than a window a span is judged, and whatever a call takes to the provider within it
// changes nothing.
func (f *fleet) transit(from, to int) int64 {
	least := int64(mostTransit)
	for s := max(0, from); s <= to; s++ {
		if p := f.line[s].Policy; p != nil {
			least = min(least, int64(p.Guard))
		}
	}
	return least
}

// judgeSliding judges the span of a window's length, and the transit, that begins with
// the first grant.
func (f *fleet) judgeSliding(l time.Duration, grants []*grant) (worst *violation) {
	a := grants[0].at
	from, to, win, ok := f.around(l, a)
	span := int64(l) + f.transit(from, f.newestAt(a+int64(l)+int64(mostTransit)))
	if !ok || !f.keeps(from, f.newestAt(a+span), win, a+span, quota.ShapeSliding) {
		return nil
	}
	var sum int64
	part := map[string]int64{}
	for _, g := range grants {
		if g.at-a > span {
			break
		}
		sum += g.permits
		part[g.id] += g.permits
	}
	for s := from; s <= to; s++ {
		v := f.slidingAgainst(s, win, a, sum, part)
		if v == nil && f.oneBinds() {
			return nil
		}
		if v != nil && (worst == nil || v.bound > worst.bound) {
			worst = v
		}
	}
	return worst
}

// keeps reports whether all states from one to another have the shape, and limit the
// windows from win to that of the true time until. Else nothing is promised: an instance
// that joins after a change knows nothing of the shape before it.
func (f *fleet) keeps(from, to int, win quota.Window, until int64, shape quota.Shape) bool {
	last := quota.WindowAt(win.Length, epoch+until+f.e).Index
	for s := from; s <= to; s++ {
		for x := win; x.Index <= last; x.Index++ {
			if !f.shapedBy(s, shape) || f.total(s, x) == unlimited {
				return false
			}
		}
	}
	return true
}

func (f *fleet) slidingAgainst(s int, win quota.Window, a, sum int64, part map[string]int64) *violation {
	total := f.total(s, win)
	if !f.shapedBy(s, quota.ShapeSliding) || total == unlimited {
		return nil
	}
	if sum > total {
		return &violation{window: win, from: a, issued: sum, bound: total}
	}
	_, shares, _ := share.Of(&f.line[s].View, win)
	for id, n := range part {
		if n > shares[id] && id != "" {
			return &violation{window: win, from: a, issued: n, bound: shares[id], who: id}
		}
	}
	return nil
}

// judgeBucket judges the spans of up to two windows' length that begin with the first
// grant: they hold at most what the instances of a state around its beginning may issue
// at once, and what accrues by the largest total that is in force on the way. A permit that pays a
// debt is one that accrued before it paid, so what pays does not count.
func (f *fleet) judgeBucket(l time.Duration, grants []*grant) *violation {
	a := grants[0].at
	from, to, win, ok := f.around(l, a)
	if !ok || !f.keeps(from, to, win, a, quota.ShapeBucket) {
		return nil
	}
	most, burst := int64(0), int64(math.MaxInt64)
	if f.oneBinds() {
		burst = 0
	}
	for s := from; s <= to; s++ {
		if b := f.burstOf(s, win); f.oneBinds() {
			burst = max(burst, b)
		} else {
			burst = min(burst, b)
		}
	}
	var sum int64
	for _, g := range grants {
		if g.at-a > 2*int64(l) {
			break
		}
		now := f.newestAt(g.at)
		if _, _, _, ok := f.around(l, g.at); !ok || !f.keeps(from, now, win, g.at, quota.ShapeBucket) {
			return nil
		}
		for s := from; s <= now; s++ {
			for v := win; v.Start()-epoch <= g.at+f.e; v.Index++ {
				most = max(most, f.total(s, v))
			}
		}
		if g.pays {
			continue
		}
		sum += g.permits
		if bound := burst + int64(float64(most)*float64(g.at-a)/float64(l)+1e-6); sum > bound {
			return &violation{window: win, from: a, issued: sum, bound: bound}
		}
	}
	return nil
}

// burstOf is what the instances of a state may issue at once, together.
func (f *fleet) burstOf(s int, win quota.Window) (sum int64) {
	v := &f.line[s].View
	total, shares, _ := share.Of(v, win)
	for _, n := range shares {
		if n > 0 {
			sum += max(1, n*protocol.BurstOf(v.Policy, quota.Limit{Permits: total, Window: win.Length})/total)
		}
	}
	return sum
}
