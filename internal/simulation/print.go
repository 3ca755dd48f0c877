package simulation

import (
	"fmt"
	"strings"
	"time"
)

// Print runs the history of a seed and tells it in words: the log, the
// incarnations, and for each window that is over who issued what and when.
func Print(kind Kind, fault Fault, seed uint64) (string, Result) {
	w := newWorld(kind, fault, seed)
	w.live()
	r := w.check()
	var b strings.Builder
	fmt.Fprintf(&b, "clocks off by at most %v, %v long\n", time.Duration(w.e), time.Duration(w.end))
	for i, s := range w.states {
		fmt.Fprintf(&b, "%9.3fs revision %d: %s\n", seconds(s.at), i+1, s.what())
	}
	for _, a := range w.actors {
		fmt.Fprintf(&b, "%s (#%d): in by revision %d, stops %.3fs, clock error %v at 0, drift %d ppm", a.id, a.number,
			a.joined+1, seconds(a.stop), time.Duration(a.clock.err), a.clock.rate)
		for _, s := range a.cuts {
			fmt.Fprintf(&b, ", cut off %.3f-%.3fs", seconds(s.from), seconds(s.to))
		}
		for _, s := range a.stalls {
			fmt.Fprintf(&b, ", does not run %.3f-%.3fs", seconds(s.from), seconds(s.to))
		}
		if s := a.clock.suspend; s.to > 0 {
			fmt.Fprintf(&b, ", suspended %.3f-%.3fs", seconds(s.from), seconds(s.to))
		}
		b.WriteByte('\n')
	}
	for _, v := range r.Over {
		fmt.Fprintf(&b, "OVER: %v\n", v)
		w.tell(&b, v)
	}
	for _, v := range r.Short {
		fmt.Fprintf(&b, "SHORT: %v\n", v)
		w.tell(&b, v)
	}
	fmt.Fprintf(&b, "judged %v, %d permits in %d windows, %d over\n", r.Judged, r.Permits, r.Windows, len(r.Over))
	return b.String(), r
}

// tell lists the permits of a window, and what their owners had seen.
func (w *world) tell(b *strings.Builder, v Violation) {
	for _, a := range w.actors {
		for _, g := range a.inst.grants {
			if g.wall < v.Window.Start() || g.wall >= v.Window.End() {
				continue
			}
			seen := a.joined
			for s := range a.seen {
				if s > seen && a.seen[s] > 0 && a.seen[s] <= g.at {
					seen = s
				}
			}
			fmt.Fprintf(b, "  %.3fs %s takes %d, has seen revision %d\n", seconds(g.at), a.id, g.permits, seen+1)
		}
	}
}

func seconds(t int64) float64 { return float64(t) / 1e9 }

func (s *state) what() string {
	c := &s.change
	var parts []string
	if p := c.Policy; p != nil {
		parts = append(parts, fmt.Sprintf("policy %v mode %q S %v S' %v guard %v", p.Limits, p.Mode, p.Settle, p.Freshness, p.Guard))
		for _, n := range p.Next {
			parts = append(parts, fmt.Sprintf("then %v from %.3fs", n.Limits, seconds(n.From.UnixNano()-epoch)))
		}
	}
	if c.PolicyDeleted {
		parts = append(parts, "policy deleted")
	}
	for _, p := range c.Put {
		text := p.ID + " is put"
		if !p.From.IsZero() {
			text += fmt.Sprintf(", from %.3fs", seconds(p.From.UnixNano()-epoch))
		}
		if !p.Until.IsZero() {
			text += fmt.Sprintf(", until %.3fs", seconds(p.Until.UnixNano()-epoch))
		}
		parts = append(parts, text)
	}
	for _, id := range c.Deleted {
		parts = append(parts, id+" is gone")
	}
	return strings.Join(parts, "; ")
}
