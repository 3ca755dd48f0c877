package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// ahead counts the plans that were made for later.
type ahead struct {
	*fixed
	plans int
}

func (a *ahead) Foresee(mono int64) plans.Plan {
	a.plans++
	return a.fixed.Foresee(mono)
}

// A status of each of a thousand providers keeps no plans: 64 of them took 70 kB for each.
func TestAStatusMakesNoPlansWhereOthersLend(t *testing.T) {
	f := &ahead{fixed: newFixed(map[time.Duration]int64{second: 40})}
	f.total = 120
	f.plan.Lending = plans.Lending{Self: "me", Lends: true, Borrows: true}
	g := gateOf(f, 0, nil)
	g.Changed(at(0))
	if u := g.Usage(at(1)); u.Largest != 120 || f.plans != 0 {
		t.Errorf("the largest request is of %d, want 120; %d plans were made for it, want none", u.Largest, f.plans)
	}
}

// lateLending is a plan under which permits can be borrowed from an instant on.
type lateLending struct {
	*fixed
	from int64
}

func (l lateLending) Foresee(mono int64) plans.Plan {
	p := l.fixed.Foresee(mono)
	p.Lending.Borrows = mono >= l.from
	return p
}

// What can be borrowed soon, as after a policy's shape has changed, is not refused until then.
func TestTheLargestWhereOthersLendSoon(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 120
	g := gateOf(lateLending{f, int64(8 * second)}, 9, nil)
	g.Changed(at(0))
	for n, want := range map[int64]queue.Verdict{120: queue.Queued, 121: queue.TooLarge} {
		if _, v := g.Enter(at(2), &queue.Waiter{}, n, clock.Forever, queue.Default); v != want {
			t.Errorf("%d: verdict %d, want %d", n, v, want)
		}
	}
}

// A refusal tells the largest request that later windows allow, also where others lend: the
// largest that is not refused.
func TestTheLargestOfLaterWindows(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 40})
	f.total = 120
	f.plan.Lending = plans.Lending{Self: "me", Lends: true, Borrows: true}
	f.bound = func(w quota.Window) int64 {
		if w.Index < 3 {
			return 40
		}
		return 300
	}
	g := gateOf(f, 9, nil)
	g.Changed(at(0))
	if n := g.Largest(at(1)); n != 300 {
		t.Errorf("the largest request is of %d, want 300", n)
	}
	for n, want := range map[int64]queue.Verdict{300: queue.Queued, 301: queue.TooLarge} {
		if _, v := g.Enter(at(2), &queue.Waiter{}, n, clock.Forever, queue.Default); v != want {
			t.Errorf("%d: verdict %d, want %d", n, v, want)
		}
	}
}
