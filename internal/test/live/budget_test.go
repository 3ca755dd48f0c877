package live_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// total returns how many permits were issued in all.
func (l *ledger) total() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.slots {
		n += k
	}
	return n
}

// budget returns the use of the longest limit.
func (m *member) budget() consumer.LimitUse {
	l := m.limiter.Status().Limits
	if len(l) == 0 {
		return consumer.LimitUse{}
	}
	return l[len(l)-1]
}

// zone is a time zone whose day does not end soon.
func zone() *time.Location {
	if time.Now().UTC().Hour() == 23 {
		return time.FixedZone("Etc/GMT+9", -9*3600)
	}
	return time.UTC
}

// inDays is exact, by the days of zone.
func inDays(t *testing.T, limits string) quota.Policy {
	t.Helper()
	p := exact(t, limits, 500*ms)
	p.Zone = zone().String()
	return p
}

// spent waits until a newcomer, which has read what is in etcd, finds nothing left. Then
// n permits were issued.
func (g *group) spent(n int64) *member {
	g.t.Helper()
	m := g.join(1)[0]
	g.await("a newcomer finds nothing left", func() bool {
		var limited consumer.LimitError
		err := m.limiter.Acquire(g.t.Context(), 0)
		return errors.As(err, &limited) && limited.Window.Length == 24*time.Hour &&
			time.Until(limited.RetryAt) > 2*time.Second && errors.Is(err, consumer.ErrLimited)
	})
	if got := g.ledger.total(); got != n {
		g.t.Errorf("%d permits were issued, want %d", got, n)
	}
	return m
}

func (g *group) issued(n int64) {
	g.t.Helper()
	g.await("so many permits are issued", func() bool { return g.ledger.total() >= n })
}

func TestABudgetIsIssuedOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t, inDays(t, "100/200ms,80/d"))
	all := g.join(4)
	for _, m := range all {
		for range 20 {
			g.load.Go(m.consume)
		}
	}
	g.issued(80)
	all = append(all, g.spent(80))
	if err := all[0].session.Close(); err != nil {
		t.Error(err)
	}
	g.set(inDays(t, "100/200ms,100/d"))
	g.issued(100)
	g.set(inDays(t, "100/200ms,60/d")) // fewer than were handed out
	all = append(all, g.spent(100))
	g.set(inDays(t, "100/200ms,110/d"))
	g.issued(110)
	all = append(all, g.spent(110))
	for _, m := range all {
		if st := m.limiter.Status(); st.OverIssued != 0 {
			t.Errorf("%d over-issued", st.OverIssued)
		}
	}
}

// An instance without etcd issues what it has in hand, and then says why there is no more.
// Permits that were not used are given back by an instance that leaves.
func TestABudgetWithoutEtcd(t *testing.T) {
	t.Parallel()
	p := inDays(t, "100/200ms,3000/d")
	p.Outage = quota.OutageHold
	g := newGroup(t, p)
	link, client := g.linked()
	m := &member{g: g, session: g.session(client, coordinator.Options{Prefix: g.prefix, Logger: quiet})}
	t.Cleanup(func() { _ = m.session.Close() })
	var err error
	if m.limiter, err = consumer.Open(t.Context(), m.session, provider, consumer.Options{Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	hand := func() int64 { return m.budget().Left }
	g.await("a permit", func() bool { return m.limiter.TryAcquire() })
	g.await("something in hand", func() bool { return hand() > 0 })
	link.Cut()
	g.await("what is in hand is used up", func() bool {
		m.limiter.TryAcquire()
		return hand() == 0
	})
	g.await("ErrStale, until the day ends", func() bool {
		var limited consumer.LimitError
		err := m.limiter.Acquire(t.Context(), 0)
		return errors.Is(err, consumer.ErrStale) && errors.As(err, &limited) && limited.RetryAt.Equal(m.budget().End)
	})
	link.Mend()
	g.await("a permit of etcd that is back", func() bool { return m.limiter.TryAcquire() })
	g.await("something in hand", func() bool { return hand() > 0 })
	used := m.budget().Used
	if err := m.session.Close(); err != nil {
		t.Error(err)
	}
	if total := g.budgetTotal(g.client); total.Out != used {
		t.Errorf("%d are handed out after the only instance has left that used %d: %+v", total.Out, used, total)
	}
}

// budgetTotal reads the only total that there is.
func (g *group) budgetTotal(client *clientv3.Client) (total escrow.Total) {
	g.t.Helper()
	k, err := keys.New(g.prefix)
	if err != nil {
		g.t.Fatal(err)
	}
	g.await("a total", func() bool {
		r, err := client.Get(g.t.Context(), k.BudgetTotals(provider, "d"), clientv3.WithPrefix())
		if err != nil || len(r.Kvs) != 1 {
			return false
		}
		total, err = escrow.Decode[escrow.Total](r.Kvs[0].Value)
		return err == nil
	})
	return total
}

// A copy of etcd's files is put back after permits were taken: nothing more is handed out,
// neither to those that know of more nor to newcomers, until an operator says what was
// used.
func TestABudgetInARestoredStore(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	cluster, client := etcdtest.New(t, etcdtest.Options{Dir: dir, Processes: false})
	g := newGroupOn(t, client, inDays(t, "100/200ms,60/d"))
	m := g.join(1)[0]
	g.issued(5)
	cluster.Stop(0)
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	g.issued(g.ledger.total() + 20)
	cluster.Stop(0)
	if err := os.RemoveAll(filepath.Join(dir, "m0")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "m0"), os.DirFS(filepath.Join(backup, "m0"))); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	g.await("the window is withheld", func() bool { return g.budgetTotal(client).Withheld != "" })
	g.await("the instance has used what it had", func() bool { b := m.budget(); return b.Used > 0 && b.Left == 0 })
	g.spent(g.ledger.total())
}
