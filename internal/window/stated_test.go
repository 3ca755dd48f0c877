package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Until when the provider's rest counts is compared with corrected time, whatever the clock of the operating system says: one
// that is ahead does not end it too early, and one that is behind does not have it last longer than every limit.
func TestARestIsStatedInCorrectedTime(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{-5 * time.Minute, 0, 10 * time.Minute} {
		for _, lasts := range []time.Duration{2 * time.Minute, 55 * time.Minute} {
			f := newFixed(map[time.Duration]int64{second: 1000})
			f.long, f.whole = quota.Limit{Permits: 5000, Window: time.Hour}, true
			f.plan.Offset = int64(offset)
			g := gateOf(f, 0, new(told).decided)
			now := at(4*time.Hour + 2*time.Minute)
			g.Changed(now)
			g.States(now, 9000, 7, now.Mono+f.plan.Offset+int64(lasts))
			if n := upTo(g, now, 100); n != 7 {
				t.Errorf("corrected by %v, for %v: %d are issued, 7 are left", offset, lasts, n)
			}
		}
	}
}

// What the provider says is left is never of a limit in flight, which counts the calls that are under way: neither where its
// hold is the shortest that may last until then, nor where it has as many permits.
func TestARestIsNeverOfALimitInFlight(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{5000, 4000, 50} {
		f := newFixed(map[time.Duration]int64{second: 1000})
		p := f.Plan(at(0))
		for _, l := range []quota.Limit{{Permits: 50, Window: 10 * time.Minute, InFlight: true}, {Permits: 5000, Window: time.Hour}} {
			p.Budgets = append(p.Budgets, protocol.BudgetAt(l, time.UTC, 0))
		}
		a := Account{}
		a.Adopt(&p.Windows, func(quota.Window) int64 { return 1000 }, func() []protocol.Budget { return p.Budgets })
		if !a.States(limit, 3, int64(5*time.Minute), 0) {
			t.Errorf("of %d: etcd is told nothing", limit)
		}
		for b := range a.binding {
			if told := b.stated.Until != 0; told == b.InFlight {
				t.Errorf("of %d: %v has %+v", limit, b.Limit, b.stated)
			}
		}
	}
}

// What the provider says is left of a limit that is all of one instance stays what is left, also if the limit's phase changes
// and in the window after that, less what is issued since.
func TestARestOutlastsAPhase(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 1000})
	f.long, f.whole = quota.Limit{Permits: 100, Window: time.Hour}, true
	g := gateOf(f, 0, new(told).decided)
	start := 4 * time.Hour
	g.Changed(at(start))
	issue := func(after time.Duration, n, want int64) {
		t.Helper()
		if got := upTo(g, at(start+after), n); got != want {
			t.Errorf("after %v: %d of %d are issued, want %d", after, got, n, want)
		}
		if all, _, _ := g.Uses(at(start+after), 8); len(all) > 0 {
			t.Errorf("after %v: etcd is asked for %+v", after, all)
		}
	}
	issue(time.Second, 10, 10)
	g.States(at(start+time.Minute), 100, 40, int64(start+50*time.Minute))
	issue(2*time.Minute, 20, 20)
	f.set(func() { f.long.Phase = 17 * time.Minute })
	g.Changed(at(start + 3*time.Minute))
	issue(4*time.Minute, 5, 5)
	issue(20*time.Minute, 100, 15)
	issue(51*time.Minute, 100, 85)
}
