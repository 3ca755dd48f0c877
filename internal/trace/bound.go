package trace

import (
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// View is a view of a store, and when it was committed: after After and by By, in true
// time.
type View struct {
	protocol.View
	After, By int64
	// Lost is the index of the first view after the restore that took the commit back: 0 if
	// none did.
	Lost int
	// Gap says that there may be others between the view before and this one.
	Gap bool
	// Shares returns the shares of a window if these are divided in another way than a provider's, as those of a
	// key are; nil for a provider.
	Shares func(w quota.Window) map[string]int64
}

// Views are in the order of their commits.
type Views []View

// Unlimited is the bound of a window that no view limits.
const Unlimited = int64(math.MaxInt64)

// Bound is the smallest T*(u, W) over the views u that were the newest at some time in
// [from, to]. Over all possible commit times it lies from Least to Most.
type Bound struct {
	Least, Most int64
	// By is the index of the view that makes Most, and its run ends with End.
	By, End int
}

// Bound returns that of a window. last is when its last permit was issued at the latest.
// With any, some of these views binds and not each: that is so where the times of the
// policy change. sum is what was issued: a bound that is not less need not be exact.
func (v Views) Bound(w quota.Window, from, to, last, sum int64, any bool) Bound {
	b := Bound{Least: Unlimited, Most: Unlimited, By: -1, End: -1}
	highest, known := int64(0), false // by all possible views; whether some is certain
	for i := range v {
		if !v.maybe(i, from, to) {
			continue
		}
		final := i == len(v)-1
		least, _ := v.star(i, w, last, sum, false)
		most, end := v.star(i, w, last, sum, true)
		b.Least, highest = min(b.Least, least), max(highest, most)
		if v[i].By > to || !final && v[i+1].After < from {
			continue
		}
		if !known || any == (most > b.Most) {
			b.Most, b.By, b.End = most, i, end
		}
		known = true
	}
	switch {
	case any && known: // the promise is of one of them
		b.Least, b.Most = max(b.Least, b.Most), highest
	case !known && b.Least != Unlimited:
		b.Most = highest
	}
	return b
}

// maybe reports whether view i may have been the newest at some time in [from, to].
func (v Views) maybe(i int, from, to int64) bool {
	return v[i].Lost == 0 && v[i].After <= to && (i == len(v)-1 || v[i+1].By > from)
}

// possible returns how many views may have been.
func (v Views) possible(from, to int64) (n int) {
	for i := range v {
		if v.maybe(i, from, to) {
			n++
		}
	}
	return n
}

// star returns T* of view i: the largest total at the end of its run on any line of commits.
// Some instances may go by a line that a restore ended, and others by the next one. Of what
// is not known it assumes what gives the most, or else the least.
func (v Views) star(i int, w quota.Window, last, sum int64, most bool) (total int64, end int) {
	if total = v.Total(i, w); sum <= total {
		return total, i
	}
	in := func(n int) bool { return n < len(v) && (v[n].By <= last || most && v[n].After < last) }
	for n, e := range v.Runs(i, w, func(n int) bool { return in(n) && !v[n].Gap }) {
		if most && in(e+1) && v[e+1].Gap {
			return Unlimited, e // what is missing may have raised it
		}
		if t := v.Total(e, w); n == 0 || t > total {
			total, end = t, e
		}
	}
	return total, end
}

// Runs returns the ends of the runs of views from i on. No view of a run takes a permit
// of the window from anybody; in says whether one came in time. There is one for each
// line of commits: the newest, and those that a restore ended.
func (v Views) Runs(i int, w quota.Window, in func(n int) bool) (ends []int) {
	lines := []int{len(v)} // each line ends before that view
	for n := i + 1; n < len(v) && in(n); n++ {
		if l := v[n].Lost; l > 0 && !slices.Contains(lines, l) {
			lines = append(lines, l)
		}
	}
	for _, line := range lines {
		end := i
		for n := i + 1; n < line && in(n); n++ {
			if l := v[n].Lost; l > 0 && l < line {
				continue // lost before this line ended
			}
			if !takesNothing(&v[end], &v[n], w) {
				break
			}
			end = n
		}
		ends = append(ends, end)
	}
	return ends
}

// Total returns the total of a window by a view: Unlimited if it has no limit of that
// length in force, because then other lengths alone decide.
func (v Views) Total(i int, w quota.Window) int64 {
	p := v[i].Policy
	if p == nil {
		return Unlimited
	}
	permits, limited, inForce := limitOf(p, w)
	switch {
	case !inForce && beginsWithin(p, w):
		return 0 // it gives nothing of the window
	case !inForce || !limited:
		return Unlimited
	case givesNothing(p):
		return 0
	}
	return permits
}

// takesNothing reports whether no instance has less of a window by view v than by view
// u, unless it has promised to issue nothing; under a limit and by the same settle
// time.
func takesNothing(u, v *View, w quota.Window) bool {
	if u.Policy == nil || v.Policy == nil || u.Policy.Settle != v.Policy.Settle {
		return false
	}
	if _, limited, inForce := limitOf(v.Policy, w); u.Policy != v.Policy && (!limited || !inForce) {
		return false
	}
	before, after := u.shares(w), v.shares(w)
	for id, n := range before {
		if after[id] < n && !promised(&v.View, id, w) {
			return false
		}
	}
	return true
}

// shares returns the shares of a window.
func (v *View) shares(w quota.Window) map[string]int64 {
	if v.Shares != nil {
		return v.Shares(w)
	}
	shares, _ := sharesOf(&v.View, w)
	return shares
}

// promised reports whether an instance has said itself that it issues nothing of a window.
func promised(v *protocol.View, id string, w quota.Window) bool {
	return slices.ContainsFunc(v.Instances, func(i protocol.Instance) bool {
		return i.ID == id && !i.Until.IsZero() && i.Until.UnixNano() <= w.Start()
	})
}
