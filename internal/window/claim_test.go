package window

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// A waiter that may give its permits back is not in the way of those behind it: they are not refused,
// neither when they come nor in the window in which it is served.
func TestWhoMayGiveBackDelaysNobody(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 1})
	f.total, f.instances = 1, 2
	for _, unsure := range []bool{false, true} {
		var told told
		g, _ := lender(f)
		g.decided = told.decided
		g.Changed(at(0))
		upTo(g, at(1), 1)
		for i, w := range []*queue.Waiter{{Payload: "a", Unsure: unsure}, {Payload: "b"}} {
			if _, v := g.Enter(at(second), w, 1, int64(time.Duration(25-7*i)*second), queue.Default); (v == queue.Queued) != (i == 0 || unsure) {
				t.Errorf("unsure %v: verdict %d for waiter %d", unsure, v, i)
			}
		}
		g.Changed(at(10 * second)) // "a" is served, and "b" is judged
		if diff := cmp.Diff([]string{"a@10s"}, told.take()); diff != "" {
			t.Errorf("unsure %v: told (-want +got):\n%s", unsure, diff)
		}
	}
}

// With or without others, small calls pass a large one with what it cannot use in its window.
func TestSmallOnesPassWhereOneInstanceIsAlone(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 100})
	f.total, f.instances = 100, 1
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(0))
	upTo(g, at(1), 50)
	for i, n := range []int64{80, 20, 40} {
		if _, v := g.Enter(at(second), &queue.Waiter{Payload: n}, n, int64(12*second), queue.Default); v != []queue.Verdict{queue.Queued, queue.Granted, queue.Queued}[i] {
			t.Errorf("verdict %d for %d permits", v, n)
		}
	}
	if n := upTo(g, at(2*second), 100); n != 30 {
		t.Errorf("%d left beside the first in line, want 30", n)
	}
}
