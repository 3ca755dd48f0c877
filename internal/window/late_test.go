package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/quota"
)

// byParts are limits whose parts may end before etcd has answered.
var byParts = []quota.Limit{
	{Permits: 1000, Window: 2 * time.Minute, Sliding: true},
	{Permits: 5, Window: 8 * time.Second, InFlight: true},
}

// TestALateExchangeTellsWhetherEtcdIsAway: an exchange that comes back after its part has ended says as any other whether
// etcd is away, and how long ago it answered. While it is away it is not asked again at once.
func TestALateExchangeTellsWhetherEtcdIsAway(t *testing.T) {
	t.Parallel()
	for _, limit := range byParts {
		for _, c := range []struct{ away, answered, want bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
			k, at := longKeyOf(10, limit)
			at(0)
			b := &k.budgets[0]
			b.away = !c.want
			k.Wants(1, 1)
			u := k.TakeUse("x", 8, 1)[0]
			now := b.End
			at(now)
			if u.Away, u.Answered = c.away, c.answered; c.away {
				k.Fund(u, now)
			} else {
				fund(k, u, 0, 2, now)
			}
			k.Wants(1, now)
			if waits := len(k.TakeUse("x", 8, now)) == 0; b.use(1).Away != c.want || waits != c.want || (b.read == now) == c.away {
				t.Errorf("%v, %+v: away is %v, read at %d; is it asked later: %v", limit, c, b.use(1).Away, b.read, waits)
			}
			if c.want && len(k.TakeUse("x", 8, now+int64(AwayAgain))) == 0 {
				t.Errorf("%v: it is not asked again", limit)
			}
		}
	}
}

// TestALateTotalIsGoneBy: who wants permits of the running part goes by the total of a late answer.
func TestALateTotalIsGoneBy(t *testing.T) {
	t.Parallel()
	for _, limit := range byParts {
		for _, wants := range []bool{false, true} {
			k, at := longKeyOf(10, limit)
			at(0)
			k.Wants(1, 1)
			u := k.TakeUse("x", 8, 1)[0]
			now := k.budgets[0].End
			if at(now); wants {
				k.Wants(2, now)
			}
			fund(k, u, 1, 4, now)
			k.Wants(2, now)
			all := k.TakeUse("x", 8, now)
			if len(all) != 1 || all[0].Purse.Revision() != 1 || all[0].Back.N != 1 || all[0].Purse.Taken != 0 {
				t.Errorf("%v, wanted before: %v: %+v", limit, wants, all)
			}
		}
	}
}

// TestAStatementOutlastsItsWindow: etcd is told what the provider stated though the window ends before, or while it is told.
func TestAStatementOutlastsItsWindow(t *testing.T) {
	t.Parallel()
	hourly := quota.Limit{Permits: 1000, Window: time.Hour}
	for _, limit := range []quota.Limit{byParts[0], hourly} {
		for _, c := range []struct{ asked, told, fails, known, want bool }{
			{want: true},
			{asked: true, want: true},              // the use that is out knows nothing of it
			{asked: true, fails: true, want: true}, //
			{told: true, fails: true, want: true},  //
			{told: true, want: limit == hourly},    // the next hour has another total
			{known: true},                          // etcd has it: nobody hurries
		} {
			k, at := longKeyOf(10, limit)
			at(0)
			b := &k.budgets[0]
			ask := func() escrow.KeyUse {
				k.Wants(1, 1)
				return k.TakeUse("x", 8, 1)[0]
			}
			now := b.End
			stated := escrow.Stated{Until: now + int64(time.Minute), Of: 1000, Limit: 1000}
			u := ask()
			total := escrow.Total{Out: 100, Cluster: 1}
			if c.known {
				total.Stated = stated
			}
			u.Purse.Committed(total, 1, 1, &escrow.Verdict{Cluster: 1})
			k.Fund(u, 1)
			k.Charge(1)
			if u = (escrow.KeyUse{}); c.asked {
				u = ask()
			}
			k.States(stated.Of, stated.Left, stated.Until, 2)
			if c.told {
				u = k.TakeUse("x", 8, 2+int64(AwayAgain))[0]
			}
			if at(now); u.Purse.Taken > 0 {
				if u.Away = c.fails; c.fails {
					k.Fund(u, now)
				} else {
					fund(k, u, 0, 900, now)
				}
			}
			at(now + 1)
			all := k.TakeUse("x", 8, now+int64(AwayAgain))
			if got := len(all) == 1 && all[0].Use.Stated.Until != 0; got != c.want {
				t.Errorf("%v, %+v: %+v", limit, c, all)
			}
		}
	}
}

// TestAKeyIsKeptWhileAnEarlierPartIsAskedFor: a key is not forgotten while etcd is asked for permits of a part that has ended,
// or to take some back.
func TestAKeyIsKeptWhileAnEarlierPartIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, gives := range []bool{false, true} {
		k, at := longKeyOf(10, byParts[0])
		now := int64(0)
		next := func() {
			now = k.budgets[0].End
			at(now)
		}
		at(now)
		k.Wants(1, 1)
		u := k.TakeUse("x", 8, 1)[0]
		if gives {
			fund(k, u, 3, 900, 1)
			next()
			u = k.GiveBack("x", 8, now, false)[0]
		}
		if next(); k.over(k.windows) {
			t.Errorf("it is forgotten while etcd is asked for %+v, %+v", u.Use, u.Back)
		}
		if fund(k, u, 0, 900, now); !k.over(k.windows) {
			t.Errorf("it is kept after %+v, %+v", u.Use, u.Back)
		}
	}
}
