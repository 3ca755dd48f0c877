package window

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
)

// A refusal names what decided it: the limit, a debt, callers that are ahead, what is kept for
// critical calls, or pacing.
func TestARefusalNamesWhatDecidedIt(t *testing.T) {
	half := int64(second / 2)
	for _, c := range []struct {
		name string
		plan func(p *plans.Plan)
		do   func(g *Gate)
		n    int64
		want queue.Verdict
	}{
		{"the limit is used up", nil, func(g *Gate) { take(g, at(1), 10) }, 1, queue.Limited},
		{"the rest is too little", nil, func(g *Gate) { take(g, at(1), 8) }, 3, queue.Limited},
		{"a debt", nil, func(g *Gate) {
			grant, _ := take(g, at(1), 1)
			g.Correct(at(1), grant, 1<<40+1, 1, 30)
		}, 1, queue.Owes},
		{"a larger call is ahead", nil, func(g *Gate) {
			take(g, at(1), 4)
			g.Enter(at(1), &queue.Waiter{Payload: "large"}, 8, clock.Forever, queue.Default)
		}, 2, queue.Behind},
		{"others are ahead, and nothing is left", nil, func(g *Gate) {
			take(g, at(1), 10)
			g.Enter(at(1), &queue.Waiter{Payload: "small"}, 1, clock.Forever, queue.Default)
		}, 2, queue.Limited},
		{"one of a lower class is not ahead", nil, func(g *Gate) {
			take(g, at(1), 4)
			g.Enter(at(1), &queue.Waiter{Payload: "large"}, 8, clock.Forever, queue.Sheddable)
		}, 7, queue.Limited},
		{"the rest is kept", func(p *plans.Plan) { p.Critical = 50 }, func(g *Gate) { take(g, at(1), 5) }, 1, queue.Kept},
		{"pacing has more later", func(p *plans.Plan) { p.Pacing = shape.Pacing{Even: true} }, func(g *Gate) { take(g, at(1), 1) }, 3, queue.Paced},
		{"nothing at all is to be had", func(p *plans.Plan) { p.Hopeless = true }, func(g *Gate) { take(g, at(1), 10) }, 1, queue.Limited},
	} {
		f, g, _ := begun(map[time.Duration]int64{second: 10})
		if c.plan != nil {
			f.set(func() { c.plan(&f.plan) })
			g.Changed(at(0))
		}
		c.do(g)
		if _, v := g.Enter(at(2), nil, c.n, 0, queue.Default); v != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, v, c.want)
		}
		if _, v := g.Enter(at(2), &queue.Waiter{}, c.n, half, queue.Default); v != c.want && v != queue.Queued {
			t.Errorf("%s: verdict %d with too little patience, want %d", c.name, v, c.want)
		}
	}
}

// One that has waited in vain is told that others were ahead, and the first of them is not.
func TestAWaiterIsToldThatOthersWereAhead(t *testing.T) {
	f, g, told := begun(map[time.Duration]int64{second: 10})
	f.set(func() { f.plan.Known = false }) // nobody is refused before its deadline
	g.Changed(at(0))
	take(g, at(1), 4)
	g.Enter(at(1), &queue.Waiter{Payload: "large"}, 8, clock.Forever, queue.Default)
	g.Enter(at(1), &queue.Waiter{Payload: "small"}, 2, int64(second/4), queue.Default)
	g.Enter(at(1), &queue.Waiter{Payload: "last"}, 2, clock.Forever, queue.Default)
	g.Tick(at(second / 2))
	if diff := cmp.Diff([]string{fmt.Sprintf("small!%d", queue.Behind)}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
