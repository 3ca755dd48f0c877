package live_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// A call for more than a share is served by loans, up to the whole limit, and is never too large.
func TestACallForMoreThanAShareIsServed(t *testing.T) {
	t.Parallel()
	g := newGroup(t, etcdtest.NewClient(t, server), exact(t, "100/s", time.Second))
	all := g.join(5)
	for _, m := range all {
		m.stop() // idle ones lend
	}
	g.ready(all...)
	for i, n := range []int64{21, 60, 90, 100} {
		l := all[i].limiter
		g.await("a large call is served", func() bool {
			p, err := l.Take(g.ctx, n, 5*time.Second)
			g.issued.add(p)
			switch {
			case err == nil:
				t.Logf("%d permits; %d borrowed, the first after %v", p.N(), l.Status().Borrowed, l.Status().FirstLoanTime)
				return p.N() == n
			case !errors.Is(err, consumer.ErrLimited): // a busy machine may lend too late
				t.Fatalf("%d permits: %v", n, err)
			}
			return false
		})
	}
	if _, err := all[0].limiter.Take(g.ctx, 101, 5*time.Second); !errors.Is(err, consumer.ErrTooLarge) {
		t.Errorf("more than the limit: %v", err)
	}
}

// payer is a limiter, or a key of one.
type payer interface {
	Take(ctx context.Context, n int64, maxWait time.Duration) (consumer.Permit, error)
}

// A debt of ten of its windows is paid by what others lend, the provider's and that of a key: the own share alone
// would need 21 windows.
func TestADebtIsPaidByLoans(t *testing.T) {
	t.Parallel()
	p := exact(t, "100/s", time.Second)
	p.Keys.Limits = p.Limits
	p.Limits = exact(t, "10000/s", time.Second).Limits
	t.Run("of a key", func(t *testing.T) {
		t.Parallel()
		paidByLoans(t, p, func(l *consumer.Limiter) payer { return l.Key("k") })
	})
	t.Run("of the provider", func(t *testing.T) {
		t.Parallel()
		paidByLoans(t, exact(t, "100/s", time.Second), func(l *consumer.Limiter) payer { return l })
	})
}

func paidByLoans(t *testing.T, policy quota.Policy, payer func(l *consumer.Limiter) payer) {
	g := newGroup(t, etcdtest.NewClient(t, server), policy)
	all := g.join(5)
	for _, m := range all {
		m.stop() // idle ones lend
	}
	g.ready(all...)
	l := all[0].limiter
	by := payer(l)
	p, err := by.Take(g.ctx, 20, 5*time.Second)
	g.issued.add(p)
	if err == nil {
		err = p.Settle(450)
	}
	if err != nil {
		t.Fatal(err)
	}
	const debt = 450 - 20
	began, before := time.Now(), l.Status()
	p, err = by.Take(g.ctx, 1, consumer.Forever) // nothing is issued before the debt is paid
	g.issued.add(p)
	st := l.Status()
	borrowed := st.Borrowed + st.KeysBorrowed - before.Borrowed - before.KeysBorrowed
	t.Logf("a debt of %d is paid after %v, %d of it by loans", debt, time.Since(began), borrowed)
	if err != nil || st.Debt > 0 || st.OverIssued > 0 || borrowed < debt/2 {
		t.Errorf("%v; %d of a debt of %d are left, and %d were borrowed", err, st.Debt, debt, borrowed)
	}
}
