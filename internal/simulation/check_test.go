package simulation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// Result is what one history came to.
type Result struct {
	Permits int64 // issued by all incarnations
	Windows int   // in which any were issued
	Judged  int   // of these, those of which something is promised
	Over    []Violation
	// Asked and Given compare the totals of all windows with what was issued of
	// them.
	Asked, Given int64
	Short        []Violation // windows of which less was issued, in calm histories
	// Held is the largest sum of a window as a multiple of its total, where
	// some instances held their shares without a proof.
	Held  float64
	Stats Stats
}

// Stats counts what was done to a history, and what came of it.
type Stats struct {
	Events    [actions]int // by action
	Hosts     int
	Compacted int // watches that found their revisions gone
	Rewatched int // watches opened anew because they lagged
	Doubts    int // silences after which a view was checked
	Unlike    int // checks that found another view
	Backwards int // answers that showed a store gone back
	Anew      int // incarnations after the first of a host
	Borrowed  int // permits that newcomers were lent
	Continued int // processes that continued the incarnation before
	HeldBack  int // times that a host saw a back-off that binds
	Paid      int // permits of debts
}

// Action returns the name of the i-th action, and how often it happened.
func (s *Stats) Action(i int) (name string, n int) { return action(i).String(), s.Events[i] }

// Add adds the counts of another history.
func (s *Stats) Add(o *Stats) {
	for i := range s.Events {
		s.Events[i] += o.Events[i]
	}
	s.Hosts, s.Compacted, s.Rewatched = s.Hosts+o.Hosts, s.Compacted+o.Compacted, s.Rewatched+o.Rewatched
	s.Doubts, s.Unlike, s.Backwards, s.Anew = s.Doubts+o.Doubts, s.Unlike+o.Unlike, s.Backwards+o.Backwards, s.Anew+o.Anew
	s.Continued, s.Borrowed, s.HeldBack, s.Paid = s.Continued+o.Continued, s.Borrowed+o.Borrowed, s.HeldBack+o.HeldBack, s.Paid+o.Paid
}

// Violation is a window in which too many permits were issued, or something
// else that must not be.
type Violation struct {
	Window   quota.Window
	TrueTime bool   // the window is one of true time
	Span     int64  // if not 0, it is a span of true time that begins just before
	Until    int64  // the span's end, if it is not a window's length long
	Issued   int64  // permits
	Bound    int64  // the total that they break
	Actor    string // whose share was broken, if the sum was not
	Text     string // what else was wrong; the rest is then empty
}

// Sum reports whether the permits of all together are over.
func (v *Violation) Sum() bool { return v.Actor == "" && v.Text == "" }

// String tells the violation in a line.
func (v Violation) String() string {
	if v.Text != "" {
		return v.Text
	}
	what := fmt.Sprintf("window %v #%d (from %.3fs): %d permits, bound %d", v.Window.Length, v.Window.Index,
		seconds(v.Window.Start()-epoch), v.Issued, v.Bound)
	if v.Actor != "" {
		what += ", the share of " + v.Actor
	}
	if v.TrueTime {
		what += ", by true time"
	}
	if v.Span > 0 {
		what += fmt.Sprintf(", in the span of true time from %.6fs", seconds(v.Span-1))
	}
	if v.Until > 0 {
		what += fmt.Sprintf(" to %.6fs", seconds(v.Until))
	}
	return what
}

// wrong notes something that must not be.
func (h *host) wrong(format string, args ...any) {
	h.broken = append(h.broken, Violation{Text: fmt.Sprintf("%.3fs %s: %s", seconds(h.now), h.id, fmt.Sprintf(format, args...))})
}

// starved checks that a fresh instance that has settled has all of its share.
func (h *host) starved(now clock.Instant) {
	p := h.policy
	if h.forming.shape != quota.ShapeFixed {
		return // its share may be held back still
	}
	if h.later != nil {
		return // what was learned has still to be told to the gate
	}
	if h.mutant != nil || h.kind == Timing || !h.registered || p == nil || len(p.Limits) > 1 || len(p.Next) > 0 || h.r.IntN(8) > 0 {
		return
	}
	offset := h.Offset()
	w := quota.WindowAt(p.Limits[0].Window, now.Mono+offset)
	start := w.Start() - offset
	mono, wall := h.planner.FreshUntil(h.planner.Rules(now.Mono))
	settle := p.Settle
	if h.unset { // what the default S looks back to
		settle = max(settle, quota.DefaultSettle)
	}
	if h.heldSince >= start-int64(settle) || start < h.opens(w.Length) || now.Mono >= mono || now.Wall >= wall || h.until != 0 {
		return
	}
	_, shares, ok := share.Of(&h.etcd.states[h.last].view, w)
	got := h.planner.Bound(w, now.Mono)
	if ok && got.Permits != shares[h.id] && h.planner.Foresee(now.Mono).Offset == offset { // the plan goes by this offset
		h.wrong("may issue %d of window %v #%d, its share is %d: %v", got.Permits, w.Length, w.Index, shares[h.id], got.Reason)
	}
}

// check adds up all windows.
func (w *world) check() Result {
	r := Result{Over: w.broken, Stats: w.stats}
	w.exact = true
	r.Stats.Hosts = len(w.hosts)
	for _, h := range w.hosts {
		for _, g := range h.grants {
			r.Permits += g.permits
		}
		r.Stats.Anew += max(0, h.attempt-1)
		if w.kind == Hold && !w.judged(h) {
			w.exact = false
		}
	}
	if w.exact {
		w.judgeSpans(&r)
	}
	b := newBook(w)
	for _, l := range w.lengths {
		b.count(l, false)
		for k := range b.n {
			win := quota.Window{Length: l, Index: b.base + int64(k)}
			sum, part := b.window(k)
			if sum > 0 {
				r.Windows++
				if w.promises(win) {
					r.Judged++
				}
				if v := w.judge(win, b, part, sum); v != nil {
					r.Over = append(r.Over, *v)
				}
				r.Held = max(r.Held, w.held(win, b, k))
			}
			if total := w.promised(win); total > 0 {
				given := sum + w.stranded(win, b, part)
				r.Asked, r.Given = r.Asked+total, r.Given+min(total, given)
				if w.kind == Calm && given < total {
					r.Short = append(r.Short, Violation{Window: win, Issued: sum, Bound: total})
				}
			}
		}
		if w.allGuarded() {
			b.count(l, true)
			for k := range b.n {
				win := quota.Window{Length: l, Index: b.base + int64(k)}
				if sum, part := b.window(k); sum > 0 {
					if v := w.judge(win, b, part, sum); v != nil {
						v.TrueTime = true
						r.Over = append(r.Over, *v)
					}
				}
			}
		}
	}
	return r
}

// book is the permits of one length's windows, by incarnation.
type book struct {
	w      *world
	ids    []string
	base   int64 // index of the first window
	n      int
	issued []int64 // by window and incarnation
	held   []int64 // by window: permits without a recent proof
}

func newBook(w *world) *book {
	b := &book{w: w}
	for _, h := range w.hosts {
		for i := range h.grants {
			if g := &h.grants[i]; !slices.Contains(b.ids, g.id) {
				b.ids = append(b.ids, g.id)
			}
		}
	}
	for _, l := range w.loans {
		for _, id := range []string{l.host, l.guest} {
			if !slices.Contains(b.ids, id) {
				b.ids = append(b.ids, id)
			}
		}
	}
	return b
}

// count counts the windows of a length, by the windows of the ledgers or by true
// time. A limit that was removed before an incarnation's history began binds
// those who knew it until its last window ends, but it cannot bind that
// incarnation; such permits are not counted. By true time, a limit that is
// removed ends with the last window that it binds on the host's clock. Under the rule hold, with only some
// cut off, permits without a proof are counted apart.
func (b *book) count(l time.Duration, trueTime bool) {
	w := b.w
	b.base = quota.WindowAt(l, epoch).Index - 2
	b.n = int(w.end/int64(l)) + 4
	b.issued = make([]int64, b.n*len(b.ids))
	b.held = make([]int64, b.n)
	for _, h := range w.hosts {
		for _, g := range h.grants {
			win := g.window(l)
			if trueTime {
				win = quota.WindowAt(l, epoch+g.at)
				if !slices.Contains(g.binds, l) {
					continue
				}
			}
			if !w.knows(g, win) {
				continue
			}
			k := max(0, min(int(win.Index-b.base), b.n-1))
			if g.stale && (w.kind != Hold || g.at < w.outage) {
				b.held[k] += g.permits
				continue
			}
			b.issued[k*len(b.ids)+slices.Index(b.ids, g.id)] += g.permits
		}
	}
}

func (b *book) window(k int) (sum int64, part []int64) {
	part = b.issued[k*len(b.ids) : (k+1)*len(b.ids)]
	for _, p := range part {
		sum += p
	}
	return sum, part
}

// held returns the permits of a window, with those that are held without a
// proof, as a multiple of the total.
func (w *world) held(win quota.Window, b *book, k int) float64 {
	if b.held[k] == 0 {
		return 0
	}
	total := w.total(w.stateAt(win.Start()-epoch-w.settle()), win)
	if total <= 0 || total == unlimited {
		return 0
	}
	sum, _ := b.window(k)
	return float64(sum+b.held[k]) / float64(total)
}

// allGuarded reports whether every policy's guard covers the clock error.
func (w *world) allGuarded() bool {
	for i := range w.etcd.states {
		// Under hold a suspension goes unseen until the window's end.
		if p := w.etcd.states[i].view.Policy; p != nil && (!w.guardCovers(p) || w.kind == Switch && p.Outage == quota.OutageHold) {
			return false
		}
	}
	return true
}

// promised is the total of a window in the middle of the history, 0 if it has
// none, or if somebody is told to issue nothing in some of it.
func (w *world) promised(win quota.Window) int64 {
	start := win.Start() - epoch
	if start < int64(w.first.Settle)+500*ms || win.End()-epoch > min(w.end, w.outage)-100*ms || w.pausedIn(win) || w.paceMoves(win) {
		return 0
	}
	n := w.stateAt(start)
	if total := w.total(n, win); total < unlimited && len(w.etcd.states[n].view.Instances) > 0 && w.tightest(n, win) {
		return total
	}
	return 0
}

// tightest reports whether of a state's limits that of the window allows least in
// the long run: the others cannot be used up.
func (w *world) tightest(n int, win quota.Window) bool {
	limits := w.etcd.states[n].view.Policy.LimitsAt(win.Start())
	if len(limits) == 0 {
		return false // it comes into force within the window
	}
	rate := func(l quota.Limit) float64 { return float64(l.Permits) / float64(l.Window) }
	least := slices.MinFunc(limits, func(a, b quota.Limit) int { return cmp.Compare(rate(a), rate(b)) })
	return least.Window == win.Length
}

// unlimited is the total of a window that no limit binds.
const unlimited = int64(math.MaxInt64)

// knows reports whether some state that was held limits the window.
func (w *world) knows(g grant, win quota.Window) bool {
	for s := g.last; s >= g.first; s-- {
		if w.total(s, win) != unlimited {
			return true
		}
	}
	return false
}
