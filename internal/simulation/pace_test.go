package simulation

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// This file is adaptive totals. What writes the pace does not matter to the sum: here
// somebody does, with any numbers, at any time.

// pacing is whether a history's policies are adaptive. It draws by itself, so that the
// others stay what they are.
type pacing struct {
	adaptive bool // most are
	r        *rand.Rand
}

func newPacing(seed uint64, m *Mutant) pacing {
	p := pacing{r: rand.New(rand.NewPCG(seed, 32))}
	p.adaptive = m == nil && seed%3 == 0 || m != nil && slices.Contains(m.Led, doPace)
	return p
}

// paced makes a policy adaptive, or not.
func (p *pacing) paced(n *quota.Policy) *quota.Policy {
	n.Adaptive = quota.Adaptive{}
	if p.adaptive && p.r.IntN(5) > 0 {
		n.Adaptive = quota.Adaptive{Floor: []int64{1, 10, 60, 100}[p.r.IntN(4)], Every: time.Duration(2+p.r.IntN(3)) * time.Second}
	}
	return n
}

// pace lets the pace change.
func (p *plan) pace(r *rand.Rand) {
	for at := r.Int64N(600 * ms); p.pacing.adaptive && at < p.end; at += 1 + r.Int64N(1500*ms) {
		p.add(r, at, doPace)
	}
}

// changePace writes a pace, or garbage, or deletes it.
func (w *world) changePace(r *rand.Rand) {
	c := change{pace: &protocol.Pace{Issued: r.Int64N(9), Refused: r.Int64N(9), Time: wallTime(w.now)}}
	switch r.IntN(10) {
	case 0:
		c = change{paceGone: true}
	case 1:
		c = change{garbage: view.Pace}
	default:
		for _, length := range lengthChoices { // one that is not listed has no pace
			if r.IntN(8) > 0 {
				permits := totalChoices[r.IntN(len(totalChoices))]
				c.pace.Limits = append(c.pace.Limits, quota.Limit{Permits: permits + r.Int64N(2)*r.Int64N(60), Window: length})
			}
		}
		if c.pace.Limits == nil {
			c.pace.Limits = []quota.Limit{{Permits: 1, Window: time.Second}}
		}
	}
	w.etcd.write(func() { w.etcd.commit(c) })
}

// paced is the total of a window by a view whose policy has this limit for it. The
// judge works it out by itself.
func paced(v *protocol.View, win quota.Window, limit int64) int64 {
	if v.Policy.Adaptive.Floor == 0 || v.Pace == nil {
		return limit
	}
	for _, l := range v.Pace.Limits {
		if l.Window == win.Length && l.Permits < limit {
			least := (limit*v.Policy.Adaptive.Floor + 99) / 100
			return max(l.Permits, least)
		}
	}
	return limit
}

// paceMoves reports whether a window's shares may look back to another pace than the
// one in force at its start, or that changes within it: then some permits are lost.
func (w *world) paceMoves(win quota.Window) bool {
	from, to := w.stateAt(win.Start()-epoch-w.settle()-500*ms), w.stateAt(win.End()-epoch+w.e)
	for s := max(from, 0); s <= to; s++ {
		if w.etcd.states[s].view.Pace != w.etcd.states[max(from, 0)].view.Pace {
			return true
		}
	}
	return false
}
