package share_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// TestAChangeDoesNotCountTheFleetForEachWindow: after a change, a proof, a refusal and a
// request that is larger than a share look at each instance a few times at most. Before,
// they looked at each for 64 windows.
func TestAChangeDoesNotCountTheFleetForEachWindow(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{100, 1000, 3000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			policy := plannerPolicy(quota.OutageStop)
			v := protocol.View{Revision: 1, Policy: policy}
			for i := range n {
				x := protocol.Instance{ID: fmt.Sprintf("w%d", i)}
				if i < 5 {
					x.From = time.Unix(0, planEpoch).Add(time.Hour)
				}
				v.Instances = append(v.Instances, x)
			}
			p := &share.Planner{Clock: clock.Started(instant(0), nil), Lends: true}
			p.Reset(instant(0), "w50", v)
			g := window.NewGate(p, func(*queue.Waiter, queue.Grant, queue.Verdict) {}, nil)
			ask := func(at clock.Instant) {
				p.Prove(at)
				g.Proved(at)
				g.Enter(at, nil, 1, 0, queue.Default)
				g.Estimate(at, 1, queue.Default)
				g.Enter(at, nil, 1<<20, clock.Forever, queue.Default)
			}
			ask(instant(10_000))
			if first := p.Counted(); first > max(64*n, 1<<15)*4 {
				t.Errorf("the first refusal looked %d times at each instance", first/n)
			}
			const changes = 200
			before := p.Counted()
			for i := range int64(changes) {
				at := instant(10_001 + i)
				p.Apply(at, protocol.Change{Revision: 2 + i, Put: []protocol.Instance{{ID: fmt.Sprintf("x%d", i%3)}}})
				g.Changed(at)
				ask(at)
			}
			if each := float64(p.Counted()-before) / changes / float64(n); each > 4 {
				t.Errorf("a change looked %.1f times at each instance", each)
			} else {
				t.Logf("a change looked %.2f times at each instance", each)
			}
		})
	}
}
