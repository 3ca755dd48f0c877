package simulation

import (
	"math"
	"slices"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// judged reports whether rule hold promises anything for a history with this
// host: it issued nothing while stale before the outage, and when that began it
// knew all that had been committed, but for the last moments: what S is longer
// than it must be. To be fresh is not enough. An instance that is fresh may lack
// a change of up to S' ago and hold on to its share, while another, which knows
// the change and has an even newer proof, grows by it.
func (w *world) judged(h *host) bool {
	if len(h.grants) == 0 {
		return true
	}
	for _, g := range h.grants {
		if g.stale && g.at < w.outage {
			return false
		}
	}
	if last := h.grants[len(h.grants)-1]; last.at < w.outage {
		return true
	}
	p := w.first
	spare := int64(p.Settle - quota.MinSettleFor(p.Freshness, p.ClockError, w.forming.drift()))
	return h.knew >= w.stateAt(w.outage-spare)
}

// outlasts reports whether some of a window comes after the outage of all of etcd
// began: until then nothing is held for long.
func (w *world) outlasts(win quota.Window) bool {
	return w.kind == Hold && win.End()-epoch+w.e > w.outage
}

// promises reports whether anything is promised of a window.
func (w *world) promises(win quota.Window) bool { return w.exact || !w.outlasts(win) }

// judge compares one window with etcd. The permits of an incarnation that were
// issued at different times, and those of different ones, all lie under their
// shares of one and the same state: that is the proof (docs/protocol.md). While
// the timing stays the same, it holds for every state that was the newest at
// some time in [B-, B+]. When the timing changes, it holds for one state at
// least, around the same time.
func (w *world) judge(win quota.Window, b *book, part []int64, sum int64) *Violation {
	if !w.promises(win) {
		return nil
	}
	if w.outlasts(win) {
		return w.some(win, b, part, sum, math.MinInt64, math.MaxInt64)
	}
	start := win.Start() - epoch
	lowest, highest := int64(math.MaxInt64), int64(0)
	for i := range w.etcd.states {
		if p := w.etcd.states[i].view.Policy; p != nil {
			lowest, highest = min(lowest, int64(p.Freshness)), max(highest, int64(p.Settle))
		}
	}
	if w.kind == Timing {
		if w.unset {
			highest = max(highest, int64(quota.DefaultSettle))
		}
		return w.some(win, b, part, sum, start-w.e-highest-20*ms, start+w.e-lowest)
	}
	e, length := w.e, int64(win.Length)
	from := start + e - (highest-length/protocol.DriftBound)*protocol.DriftBound/(protocol.DriftBound+1)
	to := start - e - lowest*protocol.DriftBound/(protocol.DriftBound-1)
	for s := w.stateAt(from); s <= w.stateAt(to); s++ {
		if s >= 0 && w.etcd.states[s].lost {
			continue // some went by what a restore took back, and others never saw it
		}
		if v := w.against(s, win, b, part, sum); v != nil {
			return v
		}
	}
	return nil
}

// some demands one state, the newest at some time in [from, to], under which
// all permits lie.
func (w *world) some(win quota.Window, b *book, part []int64, sum, from, to int64) *Violation {
	var worst *Violation
	for s := w.stateAt(from); s <= w.stateAt(to); s++ {
		v := w.against(s, win, b, part, sum)
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
// anything. Revisions after it that take from nobody count at once: then the state
// that they lead to is what binds.
func (w *world) against(s int, win quota.Window, b *book, part []int64, sum int64) *Violation {
	total := w.total(s, win)
	if total == unlimited || w.formerly(s, quota.ShapeSliding) || w.formerly(s, quota.ShapeBucket) {
		return nil // see judgeSpans for the latter
	}
	end, other := s, s
	if sum > total || w.exceeds(s, s, win, b, part) != nil {
		end, other = w.given(s, win)
		total = max(w.total(end, win), w.total(other, win))
	}
	if sum > total {
		return &Violation{Window: win, Issued: sum, Bound: total}
	}
	return w.exceeds(end, other, win, b, part)
}

// exceeds compares each incarnation with the larger of its shares by two states.
func (w *world) exceeds(s, other int, win quota.Window, b *book, part []int64) *Violation {
	if s < 0 {
		return nil
	}
	_, shares, _ := share.Of(&w.etcd.states[s].view, win)
	_, others, _ := share.Of(&w.etcd.states[other].view, win)
	for i, p := range part {
		bound := max(shares[b.ids[i]], others[b.ids[i]])
		if p += w.lentOf(b.ids[i], win); p > bound && !w.trick(SameID) {
			return &Violation{Window: win, Issued: p, Bound: bound, Actor: b.ids[i]}
		}
	}
	return nil
}

// given returns the end of the run of states from s on of which none takes a permit
// of the window from anybody, as far as they were committed before the window ended
// on the last clock: on the line that a restore took back, and on the one after it.
// Some may go by the one and some by the other (docs/protocol.md).
func (w *world) given(s int, win quota.Window) (end, other int) {
	last := w.stateAt(win.End() - epoch + w.e)
	end, other = s, s
	for n := s + 1; n <= last && w.takesNothing(end, n, win); n++ {
		end = n
	}
	for n := s + 1; n <= last; n++ {
		if w.etcd.states[n].lost {
			continue
		}
		if !w.takesNothing(other, n, win) {
			break
		}
		other = n
	}
	return end, other
}

// takesNothing reports whether everybody has at least as much of a window by state v
// as by state u, or has promised that it issues nothing of it; under a limit and by
// the same settle time.
func (w *world) takesNothing(u, v int, win quota.Window) bool {
	return u >= 0 && takesNothing(&w.etcd.states[u].view, &w.etcd.states[v].view, win)
}

func takesNothing(u, v *protocol.View, win quota.Window) bool {
	if u.Policy == nil || v.Policy == nil || u.Policy.Settle != v.Policy.Settle {
		return false
	}
	if _, limited, inForce := protocol.PermitsFor(v.Policy, win); u.Policy != v.Policy && (!limited || !inForce) {
		return false
	}
	_, before, _ := share.Of(u, win)
	_, after, _ := share.Of(v, win)
	for id, n := range before {
		if after[id] < n && !promised(v, id, win) {
			return false
		}
	}
	return true
}

// promised reports whether an instance has said itself that it issues nothing of a
// window.
func promised(v *protocol.View, id string, win quota.Window) bool {
	return slices.ContainsFunc(v.Instances, func(i quota.Instance) bool {
		return i.ID == id && protocol.Sealed(&i) && i.Until.UnixNano() <= win.Start()
	})
}

// total is a state's total for a window: unlimited if it has no limit of that
// length in force, since then other lengths alone decide.
func (w *world) total(s int, win quota.Window) int64 {
	p := w.etcd.states[max(s, 0)].view.Policy
	if p == nil {
		return unlimited
	}
	permits, limited, inForce := protocol.PermitsFor(p, win)
	switch {
	case !inForce && p.From.UnixNano() < win.End() &&
		slices.ContainsFunc(p.LimitsAt(p.From.UnixNano()), func(l quota.Limit) bool { return l.Window == win.Length }):
		return 0 // it comes into force within the window, and gives nothing of it
	case !inForce || !limited:
		return unlimited
	case s < 0 || p.Mode == quota.ModePause || len(p.Requires) > 0:
		return 0
	}
	return paced(&w.etcd.states[s].view, win, permits)
}
