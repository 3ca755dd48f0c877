package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// TestWhatIsStatedWaitsASecondAtMost: etcd is told what the provider has stated within AwayAgain, also where it has just
// given too few permits, before the statement or while that was made.
func TestWhatIsStatedWaitsASecondAtMost(t *testing.T) {
	t.Parallel()
	const now = int64(time.Minute)
	for _, c := range []struct {
		name        string
		whileAsked  bool
		away        bool
		soon, later int // uses at once, and AwayAgain later
	}{
		{"stated after the answer", false, false, 0, 1},
		{"stated before the answer", true, false, 0, 1},
		{"stated after there was none", false, true, 0, 1},
		{"stated before there was none", true, true, 0, 1},
	} {
		k, at := longKey(10, 1000)
		at(now)
		k.Wants(4, now)
		fund(k, k.TakeUse("x", 8, now)[0], 4, 500, now)
		k.Wants(100, now)
		u := k.TakeUse("x", 8, now)[0]
		states := func() { k.States(1000, 0, hour, now) }
		if c.whileAsked {
			states()
		}
		if u.Away = c.away; c.away {
			k.Fund(u, now)
		} else {
			fund(k, u, 0, 50, now)
		}
		if !c.whileAsked {
			states()
		}
		soon := k.TakeUse("x", 8, now+1)
		if len(soon) > 0 {
			t.Errorf("%s: etcd is asked again at once", c.name)
			continue
		}
		if all := k.TakeUse("x", 8, now+int64(AwayAgain)); len(all) != 1 || all[0].Use.Stated.Until != hour {
			t.Errorf("%s: %v later etcd is told %+v", c.name, AwayAgain, all)
		}
	}
}

// TestAKeyIsKeptUntilEtcdKnowsWhatIsStated: a key of which the provider has stated something is kept until etcd has been told
// or, where this instance alone counts it, until that is over.
func TestAKeyIsKeptUntilEtcdKnowsWhatIsStated(t *testing.T) {
	t.Parallel()
	over := func(k *Account, want bool, when string) {
		t.Helper()
		if k.over(k.windows) != want {
			t.Errorf("%s: over is %v", when, !want)
		}
	}
	minutes := func(n int64) int64 { return n * int64(time.Minute) }
	k, at := longKey(10, 100)
	at(0)
	k.Wants(2, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 2, 98, 2)
	k.Charge(2)
	at(minutes(2))
	over(k, true, "nothing is in hand")
	k.States(100, 0, minutes(30), minutes(2))
	over(k, false, "etcd has to be told")
	u := k.TakeUse("x", 8, minutes(2))[0]
	u.Away = true
	k.Fund(u, minutes(2))
	at(minutes(3))
	over(k, false, "etcd has to be told, and may be asked again")
	fund(k, k.TakeUse("x", 8, minutes(3))[0], 0, 98, minutes(3))
	over(k, true, "etcd was told")

	k, at = longKey(10, 100)
	at(0)
	whole := k.budgets[0].Budget
	whole.Whole = true
	k.adoptBudgets([]protocol.Budget{whole})
	over(k, true, "a whole limit of which nothing is used")
	k.States(100, 3, minutes(30), 0)
	over(k, false, "the provider has stated what is left of a whole limit")
	k.windows.Over = minutes(30)
	k.adoptBudgets([]protocol.Budget{whole})
	over(k, true, "what the provider stated is over")
}

// TestAWantEndsWithItsUse: where etcd was only looked at instead, since the view was in doubt, a later use does not take what
// a call wanted then.
func TestAWantEndsWithItsUse(t *testing.T) {
	t.Parallel()
	k, at := longKeyOf(100, quota.Limit{Permits: 1000, Window: time.Hour, Sliding: true})
	at(0)
	k.Wants(4, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 4, 900, 2)
	k.Wants(50, 3)
	u := k.TakeUse("x", 8, 3)[0]
	u.Use.Look = true
	fund(k, u, 0, 900, 4)
	k.Charge(3)
	if !k.Had(3, 5) {
		t.Fatal("few are in hand, and none are wanted")
	}
	if u := k.TakeUse("x", 8, 5)[0]; u.Use.Need != 0 {
		t.Errorf("a use takes %d for a call that has gone", u.Use.Need)
	}
}

// TestAPlaceTriedForWhileEtcdWasAwayIsTakenOnceFree: the place that a call wanted in vain, without waiting, is taken when one is
// free, also where etcd did not answer the first time that it was asked for it.
func TestAPlaceTriedForWhileEtcdWasAwayIsTakenOnceFree(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		f := newFixed(map[time.Duration]int64{second: 1000})
		f.long = quota.Limit{Permits: 12, Window: 8 * time.Minute, InFlight: true}
		g := gateOf(f, 0, new(told).decided)
		g.Changed(at(0))
		if _, ok := take(g, at(1), 1); ok {
			t.Fatal("nothing was taken, and a call begins")
		}
		now := at(2)
		asks := func() (need int64) {
			t.Helper()
			uses, _, _ := g.Uses(now, 10)
			if len(uses) != 1 {
				return 0
			}
			u := uses[0]
			if need = u.Use.Need; away {
				u.Away, away = true, false
			} else {
				u.Purse.Committed(escrow.Total{Out: 12, Parts: []int64{12}, Newest: u.Part().Number, Cluster: 7}, 0, 5, &escrow.Verdict{Cluster: 7})
			}
			g.Fund(now, u)
			return need
		}
		was := away
		for range 2 {
			if asks(); was {
				now = at(time.Duration(now.Mono) + AwayAgain)
			}
		}
		g.Heard(now, f.Plan(now).Budgets[0].Name(), escrow.Total{Out: 11, Parts: []int64{11}, Newest: f.Plan(now).Budgets[0].Part().Number, Cluster: 7}, 6)
		if n := asks(); n != 1 {
			t.Errorf("etcd away %v: a place is free, and %d are taken", was, n)
		}
	}
}
