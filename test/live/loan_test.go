package live_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
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

// A debt of ten of its windows is paid by what others lend: the own share alone would need 21 windows.
func TestADebtIsPaidByLoans(t *testing.T) {
	t.Parallel()
	g := newGroup(t, etcdtest.NewClient(t, server), exact(t, "100/s", time.Second))
	all := g.join(5)
	for _, m := range all {
		m.stop() // idle ones lend
	}
	g.ready(all...)
	l := all[0].limiter
	p, err := l.Take(g.ctx, 20, 5*time.Second)
	g.issued.add(p)
	if err == nil {
		err = p.Settle(450)
	}
	if err != nil {
		t.Fatal(err)
	}
	began, before := time.Now(), l.Status()
	p, err = l.Take(g.ctx, 1, consumer.Forever)
	g.issued.add(p)
	st := l.Status()
	t.Logf("a debt of %d is paid after %v, %d of it by loans", before.Debt, time.Since(began), st.Borrowed-before.Borrowed)
	if err != nil || st.Debt > 0 || st.OverIssued > 0 || st.Borrowed-before.Borrowed < before.Debt/2 {
		t.Errorf("%v; a debt of %d became %d, and %d were borrowed", err, before.Debt, st.Debt, st.Borrowed-before.Borrowed)
	}
}
