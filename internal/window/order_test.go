package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Where the zone changes, an account goes on in the day of the new one, whether that has begun earlier or later: it takes of
// that day, and of the other one no more. What it had in hand of the other one does not count there, but for a zone whose days
// begin at the same time: that is the same window, whose total in etcd is the same. A clock that was set back does not
// move an account: it stays in its window, and issues nothing until that begins.
func TestAnAccountFollowsTheZone(t *testing.T) {
	t.Parallel()
	limit := quota.Limit{Permits: 100, Window: 24 * time.Hour}
	k, now := new(Account), 34*hour // in the second day
	at := func(zone string) (of protocol.Budget) {
		t.Helper()
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		of = protocol.BudgetAt(limit, z, now)
		keys := keysAt(time.Duration(now), 1000*time.Hour)
		keys.Budgets, keys.Over = []protocol.Budget{of}, now
		k.Adopt(keys, bounds(1000), func() []protocol.Budget { return keys.Budgets })
		return of
	}
	takes := func(of protocol.Budget, hand int64) {
		t.Helper()
		if left := k.Left(); left != hand {
			t.Errorf("%d left, want %d", left, hand)
		}
		k.Wants(hand+1, now)
		all := k.TakeUse("x", 8, now)
		if len(all) != 1 || all[0].Start != of.Start || all[0].Purse.Taken-all[0].Use.Used != hand {
			t.Fatalf("%+v are asked for, want of %v", all, time.Unix(0, of.Start).UTC())
		}
		fund(k, all[0], 6, 90, now)
		if k.Charge(2); k.Left() != hand+4 {
			t.Errorf("%d left of %d", k.Left(), hand+6)
		}
	}
	takes(at("UTC"), 0)
	takes(at("Europe/Berlin"), 0)
	takes(at("Africa/Lagos"), 4) // as in Berlin, in winter
	takes(at("America/New_York"), 0)
	now += 24 * hour
	takes(at("America/New_York"), 0)
	now -= 24 * hour
	if at("America/New_York"); k.Left() != 0 {
		t.Errorf("%d left before the window", k.Left())
	}
	now += 24 * hour
	takes(at("America/New_York"), 4)
}

// Another guard moves when an instance begins the parts of a limit in flight. The part that runs goes on, whether it would
// begin earlier by the new one or later, also where it has only just begun by the old one, and the calls of it end as they
// would have.
func TestAnotherGuardStopsNoCalls(t *testing.T) {
	t.Parallel()
	limit := quota.Limit{Permits: 12, Window: 8 * time.Minute, InFlight: true}
	for i := range 4 {
		whole, was := i%2 > 0, time.Duration(i/2)*20*time.Second
		a := new(Account)
		at := func(guard time.Duration, now int64) (of protocol.Budget) {
			of = protocol.BudgetOf(limit, &quota.Policy{Timing: quota.Timing{Guard: guard}}, time.UTC, now, 3)
			of.Whole = whole
			keys := keysAt(time.Duration(now), 1000*time.Hour)
			keys.Budgets, keys.Over = []protocol.Budget{of}, now
			a.begin(keys, bounds(1000))
			if n := a.adoptBudgets(keys.Budgets); n != 0 {
				t.Errorf("guard %v: %d calls count no more", guard, n)
			}
			return of
		}
		now := at(was, hour).End
		first := at(was, now)
		if !whole {
			a.Wants(5, now)
			fund(a, a.TakeUse("", 8, now)[0], 12, 0, now)
		}
		a.Charge(5)
		grant := a.inFlight().grantOf(now, a.Epoch())
		for _, guard := range []time.Duration{20 * time.Second, 0, 10 * time.Second} {
			of := at(guard, now)
			if guard != was && of.Start == first.Start {
				t.Fatal("the guard does not move the part")
			}
			if n := a.Left(); n != 7 {
				t.Errorf("guard %v after %v: %d permits are left", guard, was, n)
			}
		}
		if !a.end(2, grant, now) || a.Left() != 9 {
			t.Errorf("2 calls have ended, and %d permits are left", a.Left())
		}
		of := at(10*time.Second, at(10*time.Second, now).End)
		if !a.end(3, grant, of.Start) || a.inFlight().underWay() != 0 {
			t.Errorf("all calls have ended, and %d are under way", a.inFlight().underWay())
		}
	}
}
