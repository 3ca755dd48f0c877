package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// TestWhatIsStatedWaitsASecondAtMost: etcd is told what the provider has stated within AwayAgain, also where it had nothing
// left or did not answer just then; and at once where it has only given too few permits.
func TestWhatIsStatedWaitsASecondAtMost(t *testing.T) {
	t.Parallel()
	const now = int64(time.Minute)
	for _, c := range []struct {
		name       string
		whileAsked bool
		away       bool
		left       int64
		atOnce     bool
	}{
		{"stated after too few were given", false, false, 50, true},
		{"stated before too few were given", true, false, 50, true},
		{"stated before nothing was left", true, false, 0, false},
		{"stated after there was no answer", false, true, 0, false},
		{"stated before there was no answer", true, true, 0, false},
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
			fund(k, u, 0, c.left, now)
		}
		if !c.whileAsked {
			states()
		}
		all := k.TakeUse("x", 8, now+1)
		if c.atOnce != (len(all) == 1) {
			t.Errorf("%s: at once etcd is told %+v", c.name, all)
		}
		if all = append(all, k.TakeUse("x", 8, now+int64(AwayAgain))...); len(all) != 1 || all[0].Use.Stated.Until != hour {
			t.Errorf("%s: %v later etcd was told %+v", c.name, AwayAgain, all)
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

// TestWhatIsTakenOnceFree: where a call wanted a place in vain, without waiting, one is taken when it is free: also where etcd did
// not answer the first time that it was asked for it, and not more than that because an earlier call had wanted more and got it.
func TestWhatIsTakenOnceFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answers []int64 // what etcd gives in turn; less than 0: it does not answer
		tried   []int64 // what a call has tried before each
	}{
		{"etcd has none", []int64{0}, []int64{1}},
		{"etcd did not answer at first", []int64{-1, 0}, []int64{1, 0}},
		{"etcd gave an earlier call what that wanted", []int64{3, 0}, []int64{3, 1}},
	} {
		f := newFixed(map[time.Duration]int64{second: 1000})
		f.long = quota.Limit{Permits: 12, Window: 8 * time.Minute, InFlight: true}
		g := gateOf(f, 0, new(told).decided)
		g.Changed(at(0))
		b, now := f.Plan(at(0)).Budgets[0], second
		total := func(out int64) escrow.Total {
			return escrow.Total{Out: out, Parts: []int64{out}, Newest: b.Part().Number, Cluster: 7}
		}
		for i, n := range c.answers {
			if _, ok := take(g, at(now), c.tried[i]); ok && c.tried[i] > 0 {
				t.Fatalf("%s: nothing is in hand, and a call begins", c.name)
			}
			uses, _, _ := g.Uses(at(now), 10)
			if len(uses) != 1 {
				t.Fatalf("%s: %+v", c.name, uses)
			}
			u := uses[0]
			if u.Away = n < 0; !u.Away {
				u.Purse.Committed(total(12), n, int64(5+i), &escrow.Verdict{Cluster: 7})
			}
			if g.Fund(at(now), u); n > 0 {
				upTo(g, at(now), n)
			}
			now += AwayAgain
		}
		g.Heard(at(now), b.Name(), total(11), 9)
		if uses, _, _ := g.Uses(at(now), 10); len(uses) != 1 || uses[0].Use.Need != 1 {
			t.Errorf("%s: a place is free, and then %+v", c.name, uses)
		}
	}
}
