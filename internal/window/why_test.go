package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A refusal names what decided it: the limit, a debt, callers that are ahead, what is kept for
// critical calls, or pacing.
func TestARefusalNamesWhatDecidedIt(t *testing.T) {
	half := int64(second / 2)
	for _, c := range []struct {
		name string
		plan func(p *Plan)
		do   func(g *Gate)
		n    int64
		want Verdict
	}{
		{"the limit is used up", nil, func(g *Gate) { take(g, at(1), 10) }, 1, Limited},
		{"the rest is too little", nil, func(g *Gate) { take(g, at(1), 8) }, 3, Limited},
		{"a debt", nil, func(g *Gate) {
			grant, _ := take(g, at(1), 1)
			g.Correct(at(1), grant, 1<<40+1, 1, 30)
		}, 1, Owes},
		{"a larger call is ahead", nil, func(g *Gate) {
			take(g, at(1), 4)
			g.Enter(at(1), &Waiter{Payload: "large"}, 8, Forever, Default)
		}, 2, Behind},
		{"others are ahead, and nothing is left", nil, func(g *Gate) {
			take(g, at(1), 10)
			g.Enter(at(1), &Waiter{Payload: "small"}, 1, Forever, Default)
		}, 2, Limited},
		{"one of a lower class is not ahead", nil, func(g *Gate) {
			take(g, at(1), 4)
			g.Enter(at(1), &Waiter{Payload: "large"}, 8, Forever, Sheddable)
		}, 7, Limited},
		{"the rest is kept", func(p *Plan) { p.Critical = 50 }, func(g *Gate) { take(g, at(1), 5) }, 1, Kept},
		{"pacing has more later", func(p *Plan) { p.Pacing = Pacing{Even: true} }, func(g *Gate) { take(g, at(1), 1) }, 3, Paced},
		{"nothing at all is to be had", func(p *Plan) { p.Hopeless = true }, func(g *Gate) { take(g, at(1), 10) }, 1, Limited},
	} {
		f, g, _ := begun(map[time.Duration]int64{second: 10})
		if c.plan != nil {
			f.set(func() { c.plan(&f.plan) })
			g.Changed(at(0))
		}
		c.do(g)
		if _, v := g.Enter(at(2), nil, c.n, 0, Default); v != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, v, c.want)
		}
		if _, v := g.Enter(at(2), &Waiter{}, c.n, half, Default); v != c.want && v != Queued {
			t.Errorf("%s: verdict %d with too little patience, want %d", c.name, v, c.want)
		}
	}
}

// One that has waited in vain is told that others were ahead, and the first of them is not.
func TestAWaiterIsToldThatOthersWereAhead(t *testing.T) {
	_, g, told := begun(map[time.Duration]int64{second: 10})
	take(g, at(1), 4)
	g.Enter(at(1), &Waiter{Payload: "large"}, 8, Forever, Default)
	w := &Waiter{Payload: "small"}
	g.Enter(at(1), w, 2, Forever, Default)
	g.Enter(at(1), &Waiter{Payload: "last"}, 2, Forever, Default)
	w.deadline, g.mu.queue.lanes[Default].unordered, g.mu.queue.lanes[Default].nearest = int64(second/4), true, int64(second/4)
	g.Tick(at(second / 2))
	if diff := cmp.Diff([]string{fmt.Sprintf("small!%d", Behind)}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
