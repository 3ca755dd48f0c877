package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// Run makes and lives through the history of a seed. m is nil, or the rule to
// break.
func Run(kind Kind, m *Mutant, seed uint64) Result {
	_, r := live(newPlan(kind, m, seed), m)
	return r
}

func live(p plan, m *Mutant) (*world, Result) {
	// Each life of a plan draws the same policies.
	p.sharing.r, p.forming.r = rand.New(rand.NewPCG(p.seed, 8)), rand.New(rand.NewPCG(p.seed, 14))
	p.pacing.r = rand.New(rand.NewPCG(p.seed, 32))
	w := newWorld(p, m)
	w.run()
	return w, w.check()
}

// Print runs the history of a seed and tells it in words: events, revisions,
// hosts, and for each window that is over who issued what and when. Events and
// hosts that do not matter are left out first, as long as bad says that the
// result is bad still.
func Print(kind Kind, m *Mutant, seed uint64, bad func(Result) bool) (string, Result) {
	p := newPlan(kind, m, seed)
	w, r := live(p, m)
	if bad != nil && bad(r) {
		p = shrink(p, m, bad)
		w, r = live(p, m)
	}
	return w.tell(r), r
}

// shrink drops events and hosts, as many as it can, so that the result stays
// bad: halves, quarters, and so on down to single ones.
func shrink(p plan, m *Mutant, bad func(Result) bool) plan {
	try := func(n plan) bool {
		_, r := live(n, m)
		if !bad(r) {
			return false
		}
		p = n
		return true
	}
	for again := true; again; {
		again = false
		for size := max(1, len(p.events)/2); size > 0; size /= 2 {
			for from := 0; from < len(p.events); from += size {
				n := p
				n.events = slices.Clone(p.events)
				dropped := false
				for i := from; i < min(from+size, len(n.events)); i++ {
					if n.events[i].do != doOutage {
						dropped = dropped || !n.events[i].dropped
						n.events[i].dropped = true
					}
				}
				again = dropped && try(n) || again
			}
		}
		for p.size > 1 {
			n := p
			n.size--
			if !try(n) {
				break
			}
			again = true
		}
	}
	for p.end > 100*ms {
		n := p
		n.end -= 100 * ms
		if !try(n) {
			break
		}
	}
	return p
}

// Policies returns the policies of a seed's history, in their order.
func Policies(kind Kind, seed uint64) (all []quota.Policy) {
	w, _ := live(newPlan(kind, nil, seed), nil)
	for i := range w.etcd.states {
		if p := w.etcd.states[i].what.policy; p != nil {
			all = append(all, *p)
		}
	}
	return all
}

// tell tells a history.
func (w *world) tell(r Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: clocks off by at most %v, %.3fs long, %d hosts at the start\n", w.kind, time.Duration(w.e), seconds(w.end), w.size)
	type line struct {
		at   int64
		text string
	}
	var lines []line
	for _, e := range w.events {
		if !e.dropped && e.text != "" {
			lines = append(lines, line{e.at, e.text})
		}
	}
	for i := range w.etcd.states {
		s := &w.etcd.states[i]
		lines = append(lines, line{s.at, fmt.Sprintf("revision %d: %s", s.view.Revision, s.what.tell())})
	}
	for _, h := range w.hosts {
		fmt.Fprintf(&b, "%s: clock off by %v at 0, monotonic clock %+d ppm%s\n", h.name, time.Duration(h.machine.err), h.machine.rate,
			spans(", cut off", h.cuts)+spans(", watch hangs", h.hangs)+spans(", does not run", h.stalls)+spans(", suspended", h.machine.sleeps))
		for _, g := range h.grants {
			if text := w.concerns(r, g); text != "" {
				lines = append(lines, line{g.at, fmt.Sprintf("  %s takes %d%s, holds revision %d", g.id, g.permits, text, w.etcd.states[g.last].view.Revision)})
			}
		}
	}
	slices.SortStableFunc(lines, func(x, y line) int { return int(max(-1, min(1, x.at-y.at))) })
	for _, l := range lines {
		fmt.Fprintf(&b, "%9.3fs %s\n", seconds(l.at), l.text)
	}
	for _, v := range r.Over {
		fmt.Fprintf(&b, "OVER: %v\n", v)
	}
	for _, v := range r.Short {
		fmt.Fprintf(&b, "SHORT: %v\n", v)
	}
	fmt.Fprintf(&b, "%d permits in %d windows, %d judged, %d over\n", r.Permits, r.Windows, r.Judged, len(r.Over))
	return b.String()
}

// concerns says in which of the bad windows a grant is, if in any.
func (w *world) concerns(r Result, g grant) string {
	for _, v := range slices.Concat(r.Over, r.Short) {
		if until := max(v.Until, v.Span-1+int64(v.Window.Length)); v.Span > 0 {
			if g.at >= v.Span-1 && g.at <= until {
				return " in the span"
			}
			continue
		}
		win := g.window(max(v.Window.Length, 1))
		if v.TrueTime {
			win = quota.WindowAt(v.Window.Length, epoch+g.at)
		}
		if v.Text == "" && v.Window == win {
			return fmt.Sprintf(" of %v #%d", v.Window.Length, v.Window.Index)
		}
	}
	return ""
}

func spans(what string, all []span) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "%s %.3f-%.3fs", what, seconds(s.from), seconds(s.to))
	}
	return b.String()
}
