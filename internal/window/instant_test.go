package window

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// dated is a planner that notes for which instants it was asked for a plan.
type dated struct {
	*fixed
	asked []clock.Instant
}

func (p *dated) Plan(at clock.Instant) plans.Plan {
	p.asked = append(p.asked, at)
	return p.fixed.Plan(at)
}

// TestThePlannerGetsTheNewestReadingWhole: callers that read the clocks early may come to the gate late. Whoever makes
// the gate plan, the planner gets the newest reading that has come: not the newest of one clock beside an older one of
// the other.
func TestThePlannerGetsTheNewestReadingWhole(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		r := rand.New(rand.NewPCG(seed, 29))
		p := &dated{fixed: newFixed(map[time.Duration]int64{second: 3})}
		p.plan.Proof.Strict = true // Proved does nothing otherwise
		g := gateOf(p, 0, func(*queue.Waiter, queue.Grant, queue.Verdict) {})
		newest := at(0)
		g.Changed(newest)
		older := 0 // news by a caller that read the clocks before another one
		for now := int64(second); now < int64(6*second); now += r.Int64N(int64(100 * time.Millisecond)) {
			at := clock.Instant{Mono: now - r.Int64N(int64(200*time.Millisecond))}
			at.Wall = at.Mono + r.Int64N(int64(time.Hour)) // of each reading another one
			if at.Mono >= newest.Mono {
				newest = at
			}
			p.asked = nil
			switch r.IntN(5) {
			case 0:
				if g.Changed(at); len(p.asked) == 0 {
					t.Fatalf("seed %d: news, and the planner is asked for no plan", seed)
				}
				if at != newest {
					older++
				}
			case 1:
				g.Proved(at)
			case 2:
				g.Tick(at)
			case 3:
				take(g, at, 1)
			case 4:
				g.Enter(at, &queue.Waiter{}, 2, at.Mono+int64(second), queue.Default)
			}
			for _, got := range p.asked {
				if got != newest {
					t.Fatalf("seed %d: %+v comes, and the planner gets %+v; want the newest reading, %+v", seed, at, got, newest)
				}
			}
		}
		if older == 0 {
			t.Fatalf("seed %d: no news came late", seed)
		}
	}
}
