package simulation

import (
	"fmt"
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// Result is what one history came to.
type Result struct {
	Permits int64 // issued by all incarnations
	Windows int   // in which any were issued
	Over    []Violation
	Judged  bool // false if the history is outside of what is promised
	// Asked and Given compare the totals of all windows of the first limit
	// with what was issued of them.
	Asked, Given int64
	Short        []Violation // windows of which less was issued
}

// Violation is a window in which too many permits were issued.
type Violation struct {
	Window quota.Window
	Issued int64
	Bound  int64  // the total that it breaks
	Actor  string // whose share was broken, if the sum was not
}

// String tells the violation in a line.
func (v Violation) String() string {
	what := fmt.Sprintf("window %v #%d (from %v): %d permits, bound %d", v.Window.Length, v.Window.Index,
		time.Duration(v.Window.Start()-epoch), v.Issued, v.Bound)
	if v.Actor != "" {
		what += ", the share of " + v.Actor
	}
	return what
}

// Run makes and lives through the history of a seed.
func Run(kind Kind, fault Fault, seed uint64) Result {
	w := newWorld(kind, fault, seed)
	w.live()
	return w.check()
}

func (w *world) live() {
	for _, a := range w.actors {
		a.prepare()
		a.live()
	}
}

// check adds up all windows.
func (w *world) check() Result {
	r := Result{Judged: true}
	for _, a := range w.actors {
		for _, g := range a.inst.grants {
			r.Permits += g.permits
		}
		if w.kind == Hold && !w.judged(a) {
			r.Judged = false
		}
	}
	for _, l := range w.lengths {
		first := quota.WindowAt(l, epoch).Index - 2
		n := int(w.end/int64(l)) + 4
		issued := w.issued(l, first, n)
		for k := range n {
			win := quota.Window{Length: l, Index: first + int64(k)}
			part := issued[k*len(w.actors) : (k+1)*len(w.actors)]
			sum := int64(0)
			for _, p := range part {
				sum += p
			}
			if sum > 0 {
				r.Windows++
				if v := w.judge(win, part, sum); v != nil {
					r.Over = append(r.Over, *v)
				}
			}
			if total := w.promised(win); total > 0 {
				r.Asked, r.Given = r.Asked+total, r.Given+min(total, sum)
				if w.kind == Calm && sum < total {
					r.Short = append(r.Short, Violation{Window: win, Issued: sum, Bound: total})
				}
			}
		}
	}
	return r
}

// promised is the total of a window in the middle of the history, 0 if it has
// none.
func (w *world) promised(win quota.Window) int64 {
	start := win.Start() - epoch
	if start < w.states[0].view.Policy.Settle.Nanoseconds()+500*ms || win.End()-epoch > min(w.end, w.outage)-100*ms {
		return 0
	}
	if total := w.total(w.stateAt(start), win); total < unlimited && len(w.states[w.stateAt(start)].view.Instances) > 0 {
		return total
	}
	return 0
}

// unlimited is the total of a window that no limit binds.
const unlimited = int64(math.MaxInt64)

// issued returns the permits by window and actor. A limit that was removed
// before an actor's history began binds those who knew it until its last window
// ends, but it cannot bind the actor; such permits are not counted.
func (w *world) issued(l time.Duration, first int64, n int) []int64 {
	issued := make([]int64, n*len(w.actors))
	for i, a := range w.actors {
		for _, g := range a.inst.grants {
			win := quota.WindowAt(l, g.wall)
			if !w.knows(g, win) {
				continue
			}
			k := int(win.Index - first)
			issued[max(0, min(k, n-1))*len(w.actors)+i] += g.permits
		}
	}
	return issued
}

// knows reports whether some state that was held limits the window.
func (w *world) knows(g grant, win quota.Window) bool {
	for s := g.last; s >= g.first; s-- {
		if w.total(s, win) != unlimited {
			return true
		}
	}
	return false
}

// judged reports whether rule hold promises anything for a history with this
// actor: it issued nothing while stale before the outage, and when that began
// it knew all that had been committed, but for the last moments: what S is
// longer than it must be. To be fresh is not enough. An instance that is fresh
// may lack a change of up to S' ago and hold on to its share, while another,
// which knows the change and has an even newer proof, grows by it.
func (w *world) judged(a *actor) bool {
	i := &a.inst
	if i.staleUse && i.staleAt < w.outage {
		return false
	}
	if a.stop < w.outage || len(i.grants) == 0 {
		return true
	}
	p := w.states[0].view.Policy
	spare := int64(p.Settle - quota.MinSettleFor(p.Freshness, p.ClockError, time.Second))
	return i.position >= w.stateAt(w.outage-spare)
}

// judge compares one window with the log. The permits of an incarnation that
// were issued at different times, and those of different ones, all lie under
// their shares of one and the same state: that is the proof. While the timing
// stays the same, it holds for every state that was the newest at some time in
// [B-, B+]. When the timing changes, it holds for one state at least, around
// the same time.
func (w *world) judge(win quota.Window, part []int64, sum int64) *Violation {
	if w.kind == Hold {
		return w.some(win, part, sum, math.MinInt64, math.MaxInt64)
	}
	start := win.Start() - epoch
	lowest, highest := int64(math.MaxInt64), int64(0)
	for _, s := range w.states {
		if p := s.view.Policy; p != nil {
			lowest, highest = min(lowest, int64(p.Freshness)), max(highest, int64(p.Settle))
		}
	}
	if w.kind == Timing {
		highest = max(highest, int64(quota.DefaultSettle))
		return w.some(win, part, sum, start-w.e-highest-50*ms, start+w.e-lowest)
	}
	e := w.e
	length := int64(win.Length)
	from := start + e - (highest-length/quota.DriftBound)*quota.DriftBound/(quota.DriftBound+1)
	to := start - e - lowest*quota.DriftBound/(quota.DriftBound-1)
	for s := w.stateAt(from); s <= w.stateAt(to); s++ {
		if v := w.against(s, win, part, sum); v != nil {
			return v
		}
	}
	return nil
}

// some demands one state, the newest at some time in [from, to], under which
// all permits lie.
func (w *world) some(win quota.Window, part []int64, sum, from, to int64) *Violation {
	var worst *Violation
	for s := w.stateAt(from); s <= w.stateAt(to); s++ {
		v := w.against(s, win, part, sum)
		if v == nil {
			return nil
		}
		if worst == nil || v.Bound > worst.Bound {
			worst = v
		}
	}
	return worst
}

// against compares with one state; -1 is before the first, when nobody had
// anything.
func (w *world) against(s int, win quota.Window, part []int64, sum int64) *Violation {
	total := w.total(s, win)
	if total == unlimited {
		return nil
	}
	if sum > total {
		return &Violation{Window: win, Issued: sum, Bound: total}
	}
	_, shares, _ := share.Of(&w.states[s].view, win, nil)
	for i, p := range part {
		if id := w.actors[i].id; p > shares[id] && w.fault != SameID {
			return &Violation{Window: win, Issued: p, Bound: shares[id], Actor: id}
		}
	}
	return nil
}

// total is a state's total for a window: unlimited if it has no limit of that
// length in force, since then other lengths alone decide.
func (w *world) total(s int, win quota.Window) int64 {
	p := w.states[max(s, 0)].view.Policy
	if p == nil {
		return unlimited
	}
	permits, limited, inForce := p.PermitsFor(win)
	switch {
	case !limited || !inForce:
		return unlimited
	case s < 0 || p.Mode == quota.ModePause:
		return 0
	}
	return permits
}
