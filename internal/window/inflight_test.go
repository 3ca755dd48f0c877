package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// flying is an instance's part of a limit in flight of 12, of which it has taken so many; all are under way.
func flying(taken int64) (long, *plans.Windows) {
	b := newLong(protocol.BudgetAt(quota.Limit{Permits: 12, Window: time.Minute, InFlight: true}, time.UTC, 0))
	b.purse.Taken, b.used = taken, taken
	return b, &plans.Windows{Lending: plans.Lending{Instances: 3}}
}

// TestWhatIsOwedOutlastsItsPart: permits that came back, and are owed to others, are given back also when the part of
// which they were taken ends before that, and nothing else of it is there.
func TestWhatIsOwedOutlastsItsPart(t *testing.T) {
	t.Parallel()
	b, _ := flying(6)
	b.used, b.wanted.owed = 0, 6
	part := b.purse.Part
	b = b.next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false)
	if b.toReturn() != 6 || !b.returns(false) {
		t.Fatalf("%d permits are to be returned", b.toReturn())
	}
	if back := b.nextReturn(); back.N != 6 || back.Of != part {
		t.Errorf("%+v are given back", back)
	}
}

// TestNobodyYieldsBelowItsPart: calls that end one after another leave the instance an equal part of the limit.
func TestNobodyYieldsBelowItsPart(t *testing.T) {
	t.Parallel()
	b, windows := flying(6)
	b.wanted.n, b.wanted.poor, b.wanted.othersUntil = 4, 4, int64(time.Second)
	for range 6 {
		b.end(1, b.Start, 1, windows)
	}
	if b.wanted.owed != 2 || b.hand() != 4 {
		t.Errorf("%d permits are owed, %d in hand", b.wanted.owed, b.hand())
	}
}

// TestAnAnswerThatComesPartsLater: what etcd gives of a part is given back, though its answer comes when the part after it
// has ended too, and nothing else of either is there.
func TestAnAnswerThatComesPartsLater(t *testing.T) {
	t.Parallel()
	b, _ := flying(0)
	b.state, b.need = wanting, 3
	u := b.handOut(escrow.KeyUse{})
	for range 3 {
		b = b.next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false)
	}
	u.Purse.Taken = 3
	b.late(&u, 0)
	back := b.nextReturn()
	if back.N != 3 || back.Of != u.Purse.Part {
		t.Errorf("%+v are given back", back)
	}
	b.answered(&escrow.KeyUse{Budget: b.Budget, Back: back})
	if b = b.next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false); len(b.ended) > 0 {
		t.Errorf("%+v are kept", b.ended)
	}
}

// TestWhatOthersLackIsInAnAnswer: an instance learns from etcd's answer what others ask for, also if the answer comes in a
// later part. Its own write came after their ask, so the watch tells it of that too late.
func TestWhatOthersLackIsInAnAnswer(t *testing.T) {
	t.Parallel()
	for later := range 2 {
		whatOthersLackIsInAnAnswer(t, later)
	}
}

func whatOthersLackIsInAnAnswer(t *testing.T, later int) {
	b, windows := flying(4)
	a := Account{budgets: []long{b}, windows: windows}
	a.budgets[0].state = wanting
	u := a.budgets[0].handOut(escrow.KeyUse{})
	for range later {
		a.budgets[0] = a.budgets[0].next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false)
	}
	text, err := escrow.Encode(escrow.Total{Asks: []escrow.Ask{{By: 8, N: 3, Until: int64(time.Minute)}}})
	if err != nil {
		t.Fatal(err)
	}
	u.Purse.Read([]byte(text), 5, &escrow.Verdict{Cluster: 7})
	a.Fund(u, 1)
	if n := a.budgets[0].wanted.n; n != 3 {
		t.Errorf("%d parts later: others ask for %d", later, n)
	}
}

// TestATotalHeardBeforeTheAnswer: a total that an instance hears of while etcd is asked counts, if it is newer than the
// answer: whoever waits has the place that it tells of at once. An older one says nothing, also if it comes after a newer one.
func TestATotalHeardBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for _, heard := range []int64{6, 4} {
		f := newFixed(map[time.Duration]int64{second: 1000})
		f.long = quota.Limit{Permits: 12, Window: 8 * time.Minute, InFlight: true}
		told := &told{}
		g := gateOf(f, 0, told.decided)
		g.Changed(at(0))
		g.Enter(at(1), &queue.Waiter{Payload: "w"}, 1, clock.Forever, queue.Default)
		uses, _, _ := g.Uses(at(2), 10)
		if len(uses) != 1 || uses[0].Use.Need != 1 {
			t.Fatalf("%+v", uses)
		}
		g.Heard(at(3), uses[0].Name(), escrow.Total{Out: 11, Cluster: 7}, heard)
		g.Heard(at(3), uses[0].Name(), escrow.Total{Out: 12, Cluster: 7}, 3)
		uses[0].Purse.Committed(escrow.Total{Out: 12, Parts: []int64{12}, Newest: uses[0].Part().Number, Cluster: 7}, 0, 5, &escrow.Verdict{Cluster: 7})
		g.Fund(at(4), uses[0])
		uses, _, _ = g.Uses(at(5), 10)
		if again := len(uses) == 1 && uses[0].Use.Need == 1; again != (heard > 5) {
			t.Errorf("revision %d was heard: then etcd is asked for %+v", heard, uses)
		}
	}
}

// TestWhatWasNotGivenBackIsHadAgain: where etcd was not even asked to take permits back, the instance has them again, also if
// their part has ended meanwhile, and no call of it is under way. Otherwise they may have gone.
func TestWhatWasNotGivenBackIsHadAgain(t *testing.T) {
	t.Parallel()
	for k := range 16 {
		earlier, later, unsent, open := k&1 > 0, k&2 > 0, k&4 > 0, int64(3*(k>>3))
		b, windows := flying(5)
		b.used, b.binds = open, true
		next := func() { b = b.next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false) }
		if earlier {
			next()
		}
		a := Account{budgets: []long{b}, windows: windows}
		u := a.GiveBack("", 10, 1, true)[0]
		if b = a.budgets[0]; later {
			next()
		}
		a.budgets[0] = b
		u.Away, u.Unsent = true, unsent
		a.Fund(u, 2)
		want := open
		if unsent {
			want = 5
		}
		if got := a.budgets[0].has(); u.Back.N != 5-open || got != want {
			t.Errorf("earlier %v, later %v, unsent %v, %d under way: %+v, then it has %d", earlier, later, unsent, open, u.Back, got)
		}
	}
}

// TestWhoEndsWhileItWantsGivesBack: an instance that ends gives back what it has of earlier parts also when it wanted
// more just then.
func TestWhoEndsWhileItWantsGivesBack(t *testing.T) {
	t.Parallel()
	for _, limit := range []quota.Limit{
		{Permits: 12, Window: time.Minute, InFlight: true},
		{Permits: 12, Window: time.Hour, Sliding: true},
	} {
		b := newLong(protocol.BudgetAt(limit, time.UTC, 0))
		b.purse.Taken = 5
		part := b.purse.Part
		b = b.next(protocol.BudgetAt(limit, time.UTC, b.End), false)
		b.binds, b.state, b.need = true, wanting, 1
		a := Account{budgets: []long{b}, windows: &plans.Windows{Over: b.Start}}
		a.windows.Offset = b.Start
		if uses := a.GiveBack("", 10, 1, false); len(uses) != 0 { // what it asks for goes with it
			t.Errorf("%s: %+v", limit, uses)
		}
		if uses := a.GiveBack("", 10, 1, true); len(uses) != 1 || uses[0].Back != (escrow.Back{N: 5, Of: part}) {
			t.Errorf("%s: %+v", limit, uses)
		}
	}
}

// TestWhatIsInHandOfAnOlderPart: what an instance has of a part goes back to etcd also if etcd did not answer before two
// more parts of the limit had begun.
func TestWhatIsInHandOfAnOlderPart(t *testing.T) {
	t.Parallel()
	for _, limit := range []quota.Limit{
		{Permits: 12, Window: 10 * time.Minute, InFlight: true},
		{Permits: 12, Window: time.Hour, Sliding: true},
	} {
		b := newLong(protocol.BudgetAt(limit, time.UTC, 0))
		b.purse.Taken = 5
		part := b.purse.Part
		next := func() {
			b = b.next(protocol.BudgetAt(limit, time.UTC, b.End), false)
			b.binds = true
		}
		next()
		b.state, b.need = wanting, 1
		a := Account{budgets: []long{b}, windows: &plans.Windows{Over: b.Start, Offset: b.Start}}
		uses := a.TakeUse("", 10, 1)
		if len(uses) != 1 || uses[0].Back != (escrow.Back{N: 5, Of: part}) {
			t.Fatalf("%s: %+v", limit, uses)
		}
		b = a.budgets[0]
		next()
		a = Account{budgets: []long{b}, windows: &plans.Windows{Over: b.Start, Offset: b.Start}}
		uses[0].Away, uses[0].Unsent = true, true
		a.Fund(uses[0], 2)
		if uses := a.GiveBack("", 10, 3, true); len(uses) != 1 || uses[0].Back != (escrow.Back{N: 5, Of: part}) {
			t.Errorf("%s: etcd was not asked in the end, and is given back %+v", limit, uses)
		}
	}
}

// TestCallsOfAPartThatCountsNoMore: where many parts of a limit in flight pass at once, as on a machine that was suspended,
// calls that nobody has ended count no more at once, and it is told that they were not ended.
func TestCallsOfAPartThatCountsNoMore(t *testing.T) {
	t.Parallel()
	for _, parts := range []int64{2, 15} {
		b, windows := flying(5)
		b.binds = true
		start, length := b.Start, b.End-b.Start
		a := Account{budgets: []long{b}, windows: windows}
		unended := a.adoptBudgets([]protocol.Budget{protocol.BudgetAt(b.Limit, time.UTC, start+parts*length)})
		under, counts := a.budgets[0].underWay(), a.budgets[0].end(1, start, 1, windows)
		if over := parts > 10; over != (unended == 5) || over != (under == 0) || over == counts {
			t.Errorf("%d parts later %d were not ended, %d are under way, and that one has ended counts: %v", parts, unended, under, counts)
		}
	}
}

// TestWhatARestoreDropsIsNotOwed: a call that ends while etcd is asked, after a restore, owes others nothing once the answer has
// dropped its permit: it would be given back twice.
func TestWhatARestoreDropsIsNotOwed(t *testing.T) {
	t.Parallel()
	b, windows := flying(5)
	b.binds, b.state, b.need = true, wanting, 1
	a := Account{budgets: []long{b}, windows: windows}
	u := a.TakeUse("", 1, 1)[0]
	a.Restored()
	a.budgets[0].wanted.n, a.budgets[0].wanted.poor, a.budgets[0].wanted.othersUntil = 9, 9, int64(time.Hour)
	if a.budgets[0].end(1, b.Start, 2, windows); a.budgets[0].wanted.owed != 1 {
		t.Fatalf("%d are owed, want the one of the call that has ended", a.budgets[0].wanted.owed)
	}
	fund(&a, u, 0, 4, 3)
	if b := &a.budgets[0]; b.hand() != 0 || b.toReturn() != 0 || b.purse.Taken != 4 {
		t.Errorf("%d of %d taken are in hand, and %d to be returned", b.hand(), b.purse.Taken, b.toReturn())
	}
}

// TestWhatBindsNoMoreGivesBack: the place of each call that ends goes back to etcd at once also where the limit has been
// replaced, as by one with another hold: the new limit has so much less until then. It makes no difference whether
// the instance wanted more just then, and etcd did not answer, or whether calls end while etcd is asked.
func TestWhatBindsNoMoreGivesBack(t *testing.T) {
	t.Parallel()
	places := quota.Limit{Permits: 100, Window: 10 * time.Minute, InFlight: true}
	shorter := places
	shorter.Window = 5 * time.Minute
	away := func(u escrow.KeyUse) escrow.KeyUse {
		u.Away = true
		return u
	}
	for name, replace := range map[string]func(a *Account, replace func()){
		"at rest": func(_ *Account, replace func()) { replace() },
		"etcd is asked for more, and does not answer": func(a *Account, replace func()) {
			a.Wants(1, 1)
			u := a.TakeUse("", 1, 1)[0]
			replace()
			a.Fund(away(u), 2)
		},
		"etcd was asked for more, and did not answer": func(a *Account, replace func()) {
			a.Wants(1, 1)
			a.Fund(away(a.TakeUse("", 1, 1)[0]), 2)
			replace()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newLong(protocol.BudgetAt(places, time.UTC, 0))
			b.purse.Taken, b.used, b.binds = 2, 2, true
			part, start := b.purse.Part, b.Start
			now := b.End
			b = b.next(protocol.BudgetAt(places, time.UTC, now), false)
			b.binds = true
			a := &Account{budgets: []long{b}, windows: &plans.Windows{Over: now, Offset: now}}
			replace(a, func() { a.adoptBudgets([]protocol.Budget{protocol.BudgetAt(shorter, time.UTC, now)}) })
			ends := func() { a.budgets[0].end(1, start, 3, a.windows) }
			gives := func(when string) (u escrow.KeyUse) {
				t.Helper()
				uses := a.GiveBack("", 10, 3, false)
				if len(uses) != 1 || uses[0].Back != (escrow.Back{N: 1, Of: part}) {
					t.Fatalf("%s: %+v", when, uses)
				}
				return uses[0]
			}
			ends()
			u := gives("one call has ended")
			ends()
			u.Purse.Committed(escrow.Total{Out: 1, Cluster: 7}, -1, 5, &escrow.Verdict{Cluster: 7})
			a.Fund(u, 4)
			gives("the other one has ended while etcd was asked")
		})
	}
}

// TestWhoseCallsAreForgotten: calls that nobody has ended are told once they have had their time, also of a limit that was
// removed. Those are not that were dropped sooner, as another limit took the place of theirs or etcd was restored: their
// callers have made no mistake.
func TestWhoseCallsAreForgotten(t *testing.T) {
	t.Parallel()
	runs := func(inFlight bool) func(wall int64) []protocol.Budget {
		l := quota.Limit{Permits: 12, Window: time.Minute, InFlight: inFlight}
		return func(wall int64) []protocol.Budget { return []protocol.Budget{protocol.BudgetAt(l, time.UTC, wall)} }
	}
	for name, c := range map[string]struct {
		restored bool
		then     func(wall int64) []protocol.Budget
		want     int64
	}{
		"the limit stays":      {false, runs(true), 6},
		"it is removed":        {false, func(int64) []protocol.Budget { return nil }, 6},
		"it becomes another":   {false, runs(false), 0},
		"and etcd is restored": {true, runs(true), 0},
	} {
		b, windows := flying(6)
		a := Account{budgets: []long{b}, windows: windows}
		told, restores := int64(0), c.restored
		for wall := b.End; wall < int64(5*time.Minute); wall += int64(time.Second) {
			windows.Over = wall
			if told += a.adoptBudgets(c.then(wall)); restores {
				a.Restored()
				restores = false
			}
			if told > 0 && wall < b.Ends() {
				t.Fatalf("%s: after %v, calls are forgotten that may last", name, time.Duration(wall))
			}
		}
		if told != c.want {
			t.Errorf("%s: %d calls are forgotten, want %d", name, told, c.want)
		}
	}
}

// TestWhatIsLeftInAnotherPart: instances begin their parts one after another. A place of the oldest part that counts is
// left where the next part runs already, and nowhere else. Whoever is there gives others its idle places all the same. And
// who is not there yet takes its ask back if nobody waits any more: others leave that place to it.
func TestWhatIsLeftInAnotherPart(t *testing.T) {
	t.Parallel()
	const now, me, other = 1, 1, 8
	ask := func(by uint64) escrow.Ask { return escrow.Ask{By: by, N: 1, Poor: 1, Until: int64(time.Minute)} }
	// hears has an instance in a part so much later than others hear of a total of theirs.
	hears := func(later int64, asks ...escrow.Ask) (*Gate, *long) {
		b, windows := flying(6)
		f := newFixed(map[time.Duration]int64{second: 1000})
		f.long = b.Limit
		g := gateOf(f, 0, (&told{}).decided)
		g.Changed(at(0))
		g.mu.ledger.budgets[0] = b
		g.mu.ledger.windows.Lending = windows.Lending
		l := &g.mu.ledger.budgets[0]
		l.binds = true
		parts := make([]int64, l.purse.Part.Counted)
		parts[0], parts[len(parts)-1] = 11, 1
		l.purse.Committed(escrow.Total{Out: 12, Parts: parts, Newest: l.purse.Part.Number - later, Cluster: 7, Asks: asks}, 0, 5, &escrow.Verdict{Cluster: 7})
		l.wanted.n, l.wanted.poor, l.wanted.othersUntil = 1, 1, int64(time.Minute)
		return g, l
	}
	for later := range int64(2) {
		_, l := hears(later, ask(other))
		if l.used = 5; l.left() != later || !l.gives(now) {
			t.Errorf("%d parts later, %d are left: an idle place is not given to who lacks one", later, l.left())
		}
		l.used = 6
		if l.end(1, l.Start, now, &plans.Windows{Lending: plans.Lending{Instances: 3}}); l.wanted.owed != 1 {
			t.Errorf("%d parts later: %d places of calls that ended are owed", later, l.wanted.owed)
		}
	}
	for later := range int64(2) {
		g, l := hears(later, ask(me), ask(other))
		if !g.asksForNobodyLocked(l) {
			t.Errorf("%d parts later, %d are left: it asks for nobody", later, l.left())
		}
	}
}

// TestWhatIsGivenBackIsLeftForWhoComes: an instance that gives a place back, and had asked in vain before, asks anew for who
// comes now: the place may be left.
func TestWhatIsGivenBackIsLeftForWhoComes(t *testing.T) {
	t.Parallel()
	for left := range int64(2) {
		b, windows := flying(2)
		b.used, b.binds, b.again = 1, true, inFlightAgain
		a := Account{budgets: []long{b}, windows: windows}
		u := a.GiveBack("", 10, 1, true)[0]
		u.Purse.Committed(escrow.Total{Out: 12 - left, Parts: []int64{12 - left}, Newest: u.Part().Number, Cluster: 7}, 0, 5, &escrow.Verdict{Cluster: 7})
		a.Fund(u, 2)
		if news := a.Wants(1, 3); news != (left > 0) {
			t.Errorf("%d are left: etcd is asked: %v", left, news)
		}
	}
}

// TestACallThatEndsWhileEtcdIsAsked: who waits is asked for again at once, with the place of the call that has ended
// meanwhile, if the answer has none for it.
func TestACallThatEndsWhileEtcdIsAsked(t *testing.T) {
	t.Parallel()
	for ends := range int64(2) {
		f := newFixed(map[time.Duration]int64{second: 1000})
		b, windows := flying(6)
		f.long = b.Limit
		g := gateOf(f, 0, (&told{}).decided)
		g.Changed(at(0))
		g.mu.ledger.windows.Lending = windows.Lending
		l := &g.mu.ledger.budgets[0]
		earlier := l.Start - 1
		l.ended = []ended{{start: earlier, part: protocol.Part{Number: l.purse.Part.Number - 1, Counted: l.purse.Part.Counted}, taken: 6, used: 6}}
		g.Enter(at(1), &queue.Waiter{Payload: "w"}, 1, clock.Forever, queue.Default)
		uses, _, _ := g.Uses(at(2), 10)
		if len(uses) != 1 {
			t.Fatalf("%+v", uses)
		}
		l.end(ends, earlier, at(3).Mono, g.mu.ledger.windows)
		asks := false
		g.Wanting = func() { asks = true }
		uses[0].Purse.Committed(escrow.Total{Out: 12, Parts: []int64{12}, Newest: uses[0].Part().Number, Cluster: 7}, 0, 5, &escrow.Verdict{Cluster: 7})
		if g.Fund(at(4), uses[0]); asks != (ends > 0) {
			t.Errorf("%d calls have ended: etcd is asked again: %v", ends, asks)
		}
	}
}

// TestALowerLimitForgetsNoCalls: an instance that has all of the limit counts all calls that are under way, also if these are
// more than the limit has by now, and began in earlier parts. It owes others nothing.
func TestALowerLimitForgetsNoCalls(t *testing.T) {
	t.Parallel()
	b, windows := flying(10)
	b.Whole = true
	next := protocol.BudgetAt(b.Limit, time.UTC, b.End)
	next.Whole, next.Permits = true, 4
	if b = b.next(next, false); b.underWay() != 10 {
		t.Errorf("%d calls are under way", b.underWay())
	}
	b.used = 2
	if b.end(1, b.Start, 3, windows); b.wanted.owed != 0 {
		t.Errorf("%d permits are owed to others, and there are none", b.wanted.owed)
	}
}
