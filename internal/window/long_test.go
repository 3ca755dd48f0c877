package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

const hour = int64(time.Hour)

// longKey returns a key with shares of a second and a limit of an hour, and what brings it to
// the windows of a wall time.
func longKey(share, limit int64) (k *Account, at func(wall int64)) {
	return longKeyOf(share, quota.Limit{Permits: limit, Window: time.Hour})
}

// longKeyOf is longKey with any long limit.
func longKeyOf(share int64, limit quota.Limit) (k *Account, at func(wall int64)) {
	k = new(Account)
	return k, func(wall int64) {
		b := protocol.BudgetAt(limit, time.UTC, wall)
		keys := keysAt(time.Duration(wall), time.Second)
		keys.Budgets = []protocol.Budget{{Limit: quota.Limit{Window: b.Window}, Start: b.Start, End: b.End}}
		keys.Over = wall
		k.Adopt(keys, bounds(share), func() []protocol.Budget { return []protocol.Budget{b} })
	}
}

// fund returns a use that was handed out with so many permits more, and left ones.
func fund(k *Account, u escrow.KeyUse, n, left, now int64) {
	u.Purse.Committed(escrow.Total{Out: u.Permits - left, Cluster: 1}, n, u.Purse.Revision()+1, &escrow.Verdict{Cluster: 1})
	k.Fund(u, now)
}

// A key has the permits that were taken of its long limit, within its share. It wants more
// before they are spent, and asks for each once.
func TestAKeyTakesOfItsLongLimit(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	at(0)
	if k.Left() != 0 || !k.Wants(3, 1) || k.Wants(3, 1) {
		t.Fatalf("%d left of none, or it does not say once that 3 are wanted", k.Left())
	}
	all := k.TakeUse("x", 8, 1)
	if len(all) != 1 || all[0].Use.Need != 3 || all[0].Share != 10 || all[0].Key != "x" {
		t.Fatalf("%+v", all)
	}
	if k.Wants(5, 2) || len(k.TakeUse("x", 8, 2)) != 0 {
		t.Error("it asks again before the answer")
	}
	fund(k, all[0], 4, 96, 2)
	if k.Left() != 4 {
		t.Fatalf("%d left, want the 4 that were taken", k.Left())
	}
	if k.Charge(2); k.Had(2, 3) {
		t.Error("half of what was taken is in hand, and it wants more")
	}
	if k.Charge(1); !k.Had(1, 3) {
		t.Error("less than half is in hand, and it wants no more")
	}
	u := k.TakeUse("x", 8, int64(time.Second))[0]
	if u.Use.Need != 0 || u.Use.Used != 3 || u.Use.Rate != 4 {
		t.Errorf("%+v: want 3 used, 4 a second", u.Use)
	}
	fund(k, u, 20, 76, 4)
	if k.Left() != 7 {
		t.Errorf("%d left, want 7: the share of the second", k.Left())
	}
	if lent := lends(k, "guest", 4, int64(900*ms)); lent != 4 || k.budgets[0].used != 3 {
		t.Errorf("lent %d, %d used of the long limit", lent, k.budgets[0].used)
	}
	if at(int64(time.Second)); k.Left() != 10 {
		t.Errorf("%d left in the next second, want the share", k.Left())
	}
	if at(int64(time.Minute)); k.over(k.windows) {
		t.Error("an hour that counts is forgotten")
	}
	if at(hour); k.Left() != 0 || !k.over(k.windows) {
		t.Errorf("%d left of a new hour, or nothing counts and the key is kept", k.Left())
	}
}

// What callers have taken and the gate has not booked counts for the rate of use: an instance that has issued all that it had
// in hand within 20 ms takes more the next time.
func TestTheRateCountsWhatIsNotBooked(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 1_000_000})
	f.long = quota.Limit{Permits: 1_000_000, Window: 24 * time.Hour}
	g := gateOf(f, 0, new(told).decided)
	g.Changed(at(0))
	funds(g, 1, protocol.BudgetAt(f.long, time.UTC, 1), 100, 999_900)
	upTo(g, at(10*ms), 100)
	g.Want(at(20 * ms))
	uses, _, _ := g.Uses(at(20*ms), 8)
	if u := uses[0].Use; u.Used != 100 || u.Rate != 1000 { // a time below 100 ms counts as that
		t.Errorf("%+v: want 100 used, 1000 a second", u)
	}
}

// Etcd may bring what a call lacks if the short limit has more than is in hand. Permits in hand that are reserved, or that
// others in the line want, are not there for the call.
func TestWhatEtcdMayBring(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		taken, left, reserved, debt, n, others int64
		want                                   bool
	}{
		{3, 97, 0, 0, 1, 0, false}, // it is in hand
		{3, 97, 0, 0, 4, 0, true},
		{3, 97, 0, 0, 1, 3, true},
		{3, 97, 3, 0, 1, 0, true},
		{3, 97, 0, 3, 1, 0, true},
		{3, 97, 0, 0, 11, 0, false}, // the share has 10
		{3, 97, 8, 0, 3, 0, false},
		{10, 90, 0, 0, 1, 10, false}, // all of the share is in hand
		{3, 0, 0, 0, 1, 3, false},
	} {
		k, at := longKey(10, 100)
		at(0)
		k.Wants(1, 1)
		fund(k, k.TakeUse("x", 8, 1)[0], c.taken, c.left, 2)
		k.Reserve(c.reserved)
		k.Owe(c.debt)
		if end, fetches := k.Fetches(c.n, c.others); end != 0 || fetches != c.want {
			t.Errorf("%+v: ends at %v, may bring it: %v", c, end, fetches)
		}
	}
}

// A key of which nothing is in hand is forgotten, though permits of its hour were used: the total in
// etcd counts them. It is kept while it has some, or is the only one that counts them, and while
// etcd is not to be asked again.
func TestAKeyWithNothingInHandIsForgotten(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	over := func(wall time.Duration, want bool, when string) {
		t.Helper()
		if at(int64(wall)); k.over(k.windows) != want {
			t.Errorf("%s: over is %v", when, !want)
		}
	}
	at(0)
	k.Wants(2, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 2, 98, 2)
	k.Charge(1)
	over(time.Minute, false, "one in hand")
	k.Charge(1)
	over(time.Minute, false, "used in the second that runs")
	over(2*time.Minute, true, "nothing in hand")
	k.Wants(1, 3)
	u := k.TakeUse("x", 8, 3)[0]
	over(2*time.Minute, false, "etcd is asked")
	asked := int64(2 * time.Minute)
	fund(k, u, 0, 0, asked)
	over(2*time.Minute+time.Duration(spentAgain)/2, false, "etcd had no more a moment ago")
	over(2*time.Minute+time.Duration(spentAgain), true, "etcd may be asked again")

	k, at = longKey(10, 100)
	at(0)
	k.adoptBudgets([]protocol.Budget{{Limit: k.budgets[0].Limit, Start: 0, End: hour, Whole: true}})
	over(time.Minute, true, "a whole limit of which nothing is used")
	k.Charge(1)
	over(2*time.Minute, false, "a whole limit that nobody else counts")
}

// A spent limit is looked at again after a while, if a caller wants some. One that waits knows
// when the window ends.
func TestAKeysLongLimitIsSpent(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 5)
	at(0)
	k.Wants(1, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 2, 0, 2)
	k.Charge(2)
	if opens := k.Opens(1, 3, nil); opens != hour {
		t.Errorf("more in %v, want the hour", time.Duration(opens))
	}
	if u := k.Uses(1)[1]; u.Left != 0 || !u.Budget.Spent || u.Budget.Taken != 2 || u.Budget.Left != 0 {
		t.Errorf("%+v", u)
	}
	k.Wants(1, 3)
	fund(k, k.TakeUse("x", 8, 3)[0], 0, 0, 4)
	if k.Wants(1, 5) || k.WantsMore() {
		t.Error("it asks again at once")
	}
	if !k.Wants(1, 4+spentAgain) {
		t.Error("it never asks again")
	}
	away := k.TakeUse("x", 8, 4+spentAgain)[0]
	away.Away = true
	k.Fund(away, 5+spentAgain)
	if !k.WantsMore() || len(k.TakeUse("x", 8, 6+spentAgain)) != 0 || len(k.TakeUse("x", 8, 5+spentAgain+int64(AwayAgain))) != 1 {
		t.Error("it does not ask again a second after etcd was away")
	}
	if k.Wants(6, 6) {
		t.Error("it wants more than there is")
	}
}

// A key that nobody calls gives its permits back, but for reserved ones; and no caller has them
// from before on.
func TestAnIdleKeyGivesBack(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	at(0)
	k.Wants(1, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 9, 91, 2)
	k.Charge(2)
	k.Reserve(1)
	for _, now := range []int64{3, 4, longRest + 1} {
		if all := k.GiveBack("x", 8, now, false); len(all) != 0 {
			t.Fatalf("at %d: %+v", now, all)
		}
	}
	all := k.GiveBack("x", 8, 2+longRest, false)
	if len(all) != 1 || all[0].Back.N != 6 || all[0].Purse.Taken != 3 || k.Left() != 0 {
		t.Fatalf("%+v, %d left; want 6 back", all, k.Left())
	}
	fund(k, all[0], 0, 97, 3+longRest)
	if !k.Confirm(nil, 1) {
		t.Error("a reserved permit was given back")
	}
	if k.Had(1, 4+longRest) {
		t.Error("it wants more though nobody calls")
	}
	k.Wants(1, 4+longRest)
	fund(k, k.TakeUse("x", 8, 4+longRest)[0], 4, 93, 5+longRest)
	if all := k.GiveBack("x", 8, 6+longRest, true); len(all) != 1 || all[0].Back.N != 4 {
		t.Errorf("at the end %+v, want all back", all)
	}
}

// A call that comes once a minute, and does not wait, finds its permits in hand once two have come: an idle key keeps what
// the last one had, or was refused.
func TestACallThatComesSeldomFindsItsPermits(t *testing.T) {
	t.Parallel()
	const n = 10
	k, at := longKey(2*n, 1000)
	refused := 0
	for now := int64(time.Minute); now < int64(7*time.Minute); now += int64(time.Minute) {
		if at(now); k.Left() >= n {
			k.Charge(n)
			k.Had(n, now)
		} else {
			refused++
			k.Wants(n, now)
		}
		for _, u := range k.TakeUse("x", 8, now) {
			fund(k, u, 2*n, 500, now)
		}
		back := k.GiveBack("x", 8, now+longRest, false)
		for _, u := range back {
			fund(k, u, 0, 500, now+longRest)
		}
		if len(back) == 0 {
			t.Errorf("%v: an idle key gives nothing back", time.Duration(now))
		}
	}
	if refused != 2 {
		t.Errorf("%d calls were refused", refused)
	}
}

// Of a limit that counts by parts a call that comes less than once in a part, and does not wait, never finds a permit: what
// etcd gave for the one before went back when that one's part ended. docs/keys.md and docs/choose.md say so.
func TestACallThatComesLessThanOnceInAPartFindsNothing(t *testing.T) {
	t.Parallel()
	for _, limit := range []quota.Limit{
		{Permits: 1000, Window: time.Hour, Sliding: true}, // parts of 36 s
		{Permits: 1000, Window: 4 * time.Minute, InFlight: true},
	} {
		k, at := longKeyOf(10, limit)
		for now := int64(time.Hour); now < int64(time.Hour+5*time.Minute); now += int64(time.Minute) {
			if at(now); k.Left() != 0 || !k.Wants(1, now) {
				t.Fatalf("%v: after %v %d are in hand", limit, time.Duration(now), k.Left())
			}
			fund(k, k.TakeUse("x", 8, now)[0], 2, 500, now)
			if k.Left() != 2 {
				t.Fatalf("%v: %d are in hand, want what etcd gave", limit, k.Left())
			}
			for _, u := range k.GiveBack("x", 8, now+longRest, false) {
				fund(k, u, 0, 500, now+longRest)
			}
		}
	}
}

// An answer for a window that is over, or for a limit that is gone, counts nowhere.
func TestALateAnswerFundsNothing(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	at(0)
	k.Wants(1, 1)
	u := k.TakeUse("x", 8, 1)[0]
	at(hour)
	fund(k, u, 9, 91, 2)
	if k.Left() != 0 {
		t.Errorf("%d left by an answer for the hour before", k.Left())
	}
	k.Wants(1, 3)
	u = k.TakeUse("x", 8, 3)[0]
	k.Adopt(keysAt(time.Duration(hour), time.Second), bounds(10), func() []protocol.Budget { return nil })
	if k.Left() != 10 {
		t.Errorf("%d left without the long limit, want 10", k.Left())
	}
	fund(k, u, 9, 91, 4)
	k.Charge(2) // not under the limit of an hour
	if at(hour); k.Left() != 8 || k.budgets[0].used != 0 {
		t.Errorf("%d left, %d used; want 8 of the share, and all that was taken", k.Left(), k.budgets[0].used)
	}
	if at(2 * hour); len(k.budgets) != 1 {
		t.Errorf("%d budgets", len(k.budgets))
	}
}

// A limit that was raised while etcd was asked by the old one is not spent.
func TestAKeysLongLimitIsRaisedWhileAsked(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 5)
	at(0)
	k.Wants(1, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 5, 0, 2)
	k.Charge(5)
	k.Wants(1, 3)
	u := k.TakeUse("x", 8, 3)[0]
	raised := k.budgets[0].Budget
	raised.Permits = 100
	k.Adopt(keysAt(0, time.Second), bounds(10), func() []protocol.Budget { return []protocol.Budget{raised} })
	fund(k, u, 0, 0, 4)
	if s := k.Uses(1)[1].Budget; s.Spent || !k.WantsMore() || len(k.TakeUse("x", 8, 5)) != 1 {
		t.Errorf("%+v, or it does not ask by the new limit", s)
	}
}

// A limit that did not bind for a while, and comes back, is asked for again.
func TestAKeysLongLimitComesBack(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 5)
	at(0)
	if !k.Wants(1, 1) {
		t.Fatal("it wants nothing")
	}
	k.Adopt(keysAt(0, time.Second), bounds(10), func() []protocol.Budget { return nil })
	if len(k.TakeUse("x", 8, 2)) != 0 || k.WantsMore() {
		t.Error("it asks for what does not bind")
	}
	if at(1); !k.Wants(1, 3) || len(k.TakeUse("x", 8, 3)) != 1 {
		t.Error("nobody asks for what is wanted again")
	}
}

// What is not there is not asked for again at once, though less is left.
func TestAKeyThatWantsTooMuchAsksSeldom(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 10)
	at(0)
	k.Wants(5, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 0, 3, 2)
	if k.Wants(5, 3) || !k.Wants(5, 3+spentAgain) {
		t.Error("it asks again at once, or never")
	}
}

// A call that wants more than is left holds up no smaller one: etcd is asked for those as before.
func TestACallThatWantsTooMuchHoldsUpNoSmallerOne(t *testing.T) {
	t.Parallel()
	k, at := longKey(10_000, 10_000)
	at(0)
	k.Wants(1, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 70, 5900, 2)
	for _, now := range []int64{3, 2 + spentAgain} { // etcd has just said how many are left; and it is asked once more
		k.Wants(6000, now)
		for _, u := range k.TakeUse("x", 8, now) {
			fund(k, u, 0, 5900, now)
		}
		if k.Charge(70); !k.Had(70, now+1) || k.Wants(6000, now+1) || !k.WantsMore() {
			t.Errorf("at %d: nothing is in hand, and it does not ask for more", now)
		}
		u := k.TakeUse("x", 8, now+1)[0]
		if u.Use.Need != 0 {
			t.Errorf("at %d: it asks for %d, of which etcd has too few", now, u.Use.Need)
		}
		fund(k, u, 70, 5900, now+1)
	}
}

// A restore that is noticed while etcd is asked drops what the answer brings. It is asked again at once, since some are left.
func TestAfterARestoreEtcdIsAskedAgainAtOnce(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	at(0)
	k.Wants(3, 1)
	u := k.TakeUse("x", 8, 1)[0]
	k.Restored()
	fund(k, u, 3, 90, 2)
	if k.Left() != 0 || !k.Wants(3, 3) || len(k.TakeUse("x", 8, 3)) != 1 {
		t.Errorf("%d left, or etcd is not asked though it has 90", k.Left())
	}
}

// What is left of a limit follows a change of it: nobody waits for permits that a lower limit
// does not have.
func TestAKeysLongLimitIsLowered(t *testing.T) {
	t.Parallel()
	k, at := longKey(10, 100)
	at(0)
	k.Wants(1, 1)
	fund(k, k.TakeUse("x", 8, 1)[0], 2, 50, 2)
	k.Charge(2)
	if opens := k.Opens(1, 3, nil); opens != 3 {
		t.Errorf("more in %v, want now: 50 are left", time.Duration(opens))
	}
	lowered := k.budgets[0].Budget
	lowered.Permits = 50
	k.Adopt(keysAt(0, time.Second), bounds(10), func() []protocol.Budget { return []protocol.Budget{lowered} })
	if opens := k.Opens(1, 3, nil); opens != hour {
		t.Errorf("more in %v, want the hour: others have taken the rest", time.Duration(opens))
	}
}

// A store goes back under its old ID, and has no total of a key's hour that is known here. What is in hand counts no more.
// An operator's word that is said then stands, though more is known here. It makes no difference whether etcd was being asked
// just then, and whether it answers.
func TestAKeyWhoseStoreWentBackObeysAnOperator(t *testing.T) {
	t.Parallel()
	const asked = 3
	answers := func(k *Account, u escrow.KeyUse) { fund(k, u, 2, 88, asked) } // as the store of before
	fails := func(k *Account, u escrow.KeyUse) {
		u.Away = true
		k.Fund(u, asked)
	}
	for _, c := range []struct {
		name    string
		sliding bool
		restore func(k *Account, ask func() escrow.KeyUse, nextPart func())
	}{
		{"at rest", false, func(k *Account, _ func() escrow.KeyUse, _ func()) { k.Restored() }},
		{"asked, and no answer", false, func(k *Account, ask func() escrow.KeyUse, _ func()) {
			u := ask()
			k.Restored()
			fails(k, u)
		}},
		{"asked before, and answered", false, func(k *Account, ask func() escrow.KeyUse, _ func()) {
			u := ask()
			k.Restored()
			answers(k, u)
		}},
		{"asked, and no answer, but by the new store at a first try", false, func(k *Account, ask func() escrow.KeyUse, _ func()) {
			u := ask()
			u.Purse.Read(nil, 0, &escrow.Verdict{Cluster: 1})
			k.Restored()
			fails(k, u)
		}},
		{"a part ends while it is asked, after the restore", true, func(k *Account, ask func() escrow.KeyUse, nextPart func()) {
			u := ask()
			k.Restored()
			nextPart()
			answers(k, u)
		}},
		{"a part ends while it is asked, before the restore", true, func(k *Account, ask func() escrow.KeyUse, nextPart func()) {
			u := ask()
			nextPart()
			k.Restored()
			answers(k, u)
		}},
	} {
		limit := quota.Limit{Permits: 100, Window: time.Hour, Sliding: c.sliding}
		k, at := longKeyOf(10, limit)
		at(0)
		k.Wants(3, 1)
		fund(k, k.TakeUse("x", 8, 1)[0], 4, 90, 2)
		k.Charge(1)
		ask := func() escrow.KeyUse {
			k.Wants(5, asked)
			return k.TakeUse("x", 8, asked)[0]
		}
		c.restore(k, ask, func() { at(k.budgets[0].End) })
		now := asked + spentAgain
		if k.Left() != 0 {
			t.Errorf("%s: %d left", c.name, k.Left())
		}
		k.Wants(3, now)
		uses := k.TakeUse("x", 8, now)
		if len(uses) != 1 {
			t.Errorf("%s: it wants no more", c.name)
			continue
		}
		u := uses[0]
		lost := func(told int64) (next escrow.Total, n int64) {
			v := &escrow.Verdict{Cluster: 1, Told: told}
			p := u.Purse
			p.Read(nil, 0, v)
			next, n, _ = p.Next(escrow.Rule{Limit: 100, Instances: 1, Share: 10}, u.Use, u.Back, v)
			return next, n
		}
		if next, n := lost(0); n != 0 || next.Withheld == "" {
			t.Errorf("%s: it takes %d of a store that has lost some; withheld %q", c.name, n, next.Withheld)
		}
		if next, n := lost(9); n == 0 || next.Withheld != "" {
			t.Errorf("%s: it takes %d after an operator's word; withheld %q", c.name, n, next.Withheld)
		}
	}
}

// All permits that a key has in hand are reserved. If etcd has more, more may come at once; if it has none left, no sooner
// than a window opens.
func TestWhatEtcdHasNotLeftIsNotAskedFor(t *testing.T) {
	t.Parallel()
	for left, want := range map[int64]int64{96: 5, 0: int64(time.Second)} {
		k, at := longKey(10, 100)
		at(0)
		k.Wants(3, 1)
		fund(k, k.TakeUse("x", 8, 1)[0], 4, left, 2)
		if k.Reserve(4); k.Opens(1, 5, nil) != want {
			t.Errorf("%d left in etcd: one comes at %d, want %d", left, k.Opens(1, 5, nil), want)
		}
	}
}

// TestWhatIsInHandOfARemovedLimitGoesBack: others may have it if the limit comes back in its window. More of it may have been
// wanted when it was removed.
func TestWhatIsInHandOfARemovedLimitGoesBack(t *testing.T) {
	t.Parallel()
	for _, wants := range []bool{false, true} {
		k, at := longKey(100, 10_000)
		at(0)
		k.Wants(1, 1)
		fund(k, k.TakeUse("x", 8, 1)[0], 40, 900, 1)
		k.Charge(30)
		if wants != (wants && k.Had(1, 2)) {
			t.Fatal("10 of 40 are in hand, and it wants no more")
		}
		k.Adopt(keysAt(0, time.Second), bounds(100), func() []protocol.Budget { return nil })
		if all := k.GiveBack("x", 8, 2+longRest, false); len(all) != 1 || all[0].Back.N != 10 {
			t.Errorf("more was wanted: %v; %+v goes back", wants, all)
		}
	}
}
