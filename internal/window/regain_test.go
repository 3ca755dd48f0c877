package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/protocol"
)

// TestWhatIsDecidedLateIsHad: what etcd gave in a write that it did not answer is in hand once that is known, or goes back to
// etcd if its part has ended meanwhile: before the write is given up, before it is known, or before that is told.
func TestWhatIsDecidedLateIsHad(t *testing.T) {
	t.Parallel()
	verdict := &escrow.Verdict{Cluster: 1}
	for ends := range 4 { // when the part ends; 0: never
		b, windows := flying(0)
		b.binds = true
		a := Account{budgets: []long{b}, windows: windows}
		part := b.purse.Part
		next := func(now int) {
			if now == ends {
				a.budgets[0] = a.budgets[0].next(protocol.BudgetAt(b.Limit, time.UTC, a.budgets[0].End), false)
				a.budgets[0].binds = true
			}
		}
		ask := func(now int64) escrow.KeyUse {
			a.Wants(3, now)
			return a.TakeUse("", 1, now)[0]
		}
		u := ask(1)
		u.Purse.Read(nil, 0, verdict)
		total, n, _ := u.Purse.Next(escrow.Rule{Limit: 12, Instances: 1, Share: 1, Now: 1, Nonce: 5}, u.Use, u.Back, verdict)
		u.Purse.Unanswered(total, n, u.Back)
		u.Away = true
		next(1)
		a.Fund(u, 2)
		next(2)
		u = ask(2 + int64(AwayAgain))
		text, err := escrow.Encode(total)
		if err != nil {
			t.Fatal(err)
		}
		u.Purse.Read([]byte(text), 1, verdict)
		if next(3); ends == 3 { // another use of the part that runs now knows nothing of the write
			other := ask(2 + int64(AwayAgain))
			other.Purse.Read([]byte(text), 1, verdict)
			if got := other.Purse.Regained(); len(got) > 0 {
				t.Errorf("%+v is had by two uses", got)
			}
		}
		a.Fund(u, 3+int64(AwayAgain))
		got := &a.budgets[0]
		back := got.nextReturn()
		if ends == 0 && (got.hand() != 3 || back.N != 0) || ends > 0 && (got.hand() != 0 || back != (escrow.Back{N: 3, Of: part})) {
			t.Errorf("the part ends at %d: %d in hand, %+v goes back", ends, got.hand(), back)
		}
		if again := got.nextReturn(); again.N != 0 {
			t.Errorf("the part ends at %d: %+v goes back too", ends, again)
		}
	}
}
