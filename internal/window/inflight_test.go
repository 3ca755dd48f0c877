package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
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
	if b.toReturn() != 6 || !b.returns() {
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
	b.late(&u)
	if back := b.nextReturn(); back.N != 3 || back.Of != u.Purse.Part {
		t.Errorf("%+v are given back", back)
	}
	if b = b.next(protocol.BudgetAt(b.Limit, time.UTC, b.End), false); len(b.ended) > 0 {
		t.Errorf("%+v are kept", b.ended)
	}
}

// TestWhatOthersLackIsInAnAnswer: an instance learns from etcd's answer what others ask for. Its own write came after their
// ask, so the watch tells it of that too late.
func TestWhatOthersLackIsInAnAnswer(t *testing.T) {
	t.Parallel()
	b, windows := flying(4)
	a := Account{budgets: []long{b}, windows: windows}
	a.budgets[0].state = wanting
	u := a.budgets[0].handOut(escrow.KeyUse{})
	text, err := escrow.Encode(escrow.Total{Asks: []escrow.Ask{{By: 8, N: 3, Until: int64(time.Minute)}}})
	if err != nil {
		t.Fatal(err)
	}
	u.Purse.Read([]byte(text), 5, &escrow.Verdict{Cluster: 7})
	a.Fund(u, 1)
	if n := a.budgets[0].wanted.n; n != 3 {
		t.Errorf("others ask for %d", n)
	}
}
