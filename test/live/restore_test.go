package live_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/escrow"
	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// backups has an etcd whose data can be put back.
type backups struct {
	*embedded.Cluster
	t           *testing.T
	dir, backup string
}

func newBackups(t *testing.T) (*backups, *clientv3.Client) {
	t.Helper()
	b := &backups{t: t, dir: t.TempDir(), backup: filepath.Join(t.TempDir(), "backup")}
	cluster, client := etcdtest.New(t, embedded.Options{Dir: b.dir})
	b.Cluster = cluster
	return b, client
}

// swapped stops etcd, changes its data, and starts it again.
func (b *backups) swapped(change func() error) {
	b.t.Helper()
	b.Stop(0)
	if err := errors.Join(change(), b.Restart(0)); err != nil {
		b.t.Fatal(err)
	}
}

// save keeps the data as they are, under a name.
func (b *backups) save(as string) {
	b.swapped(func() error { return os.CopyFS(filepath.Join(b.backup, as), os.DirFS(b.dir)) })
}

// restore puts data back that were saved.
func (b *backups) restore(as string) {
	b.swapped(func() error { return b.put(as) })
}

// put is restore while etcd is stopped.
func (b *backups) put(as string) error {
	return errors.Join(os.RemoveAll(filepath.Join(b.dir, "m0")),
		os.CopyFS(filepath.Join(b.dir, "m0"), os.DirFS(filepath.Join(b.backup, as, "m0"))))
}

// TestARestoredBackup puts etcd's data back under a running fleet, so that the
// last change of the policy is lost without a word. Every instance must notice
// that the store went backwards, begin anew, and obey the policy that was
// restored: by itself, with what etcd has then.
func TestARestoredBackup(t *testing.T) {
	t.Parallel()
	store, client := newBackups(t)
	g := newGroup(t, client, exact(t, "60/200ms", 500*ms))
	before, err := g.admin.Get(t.Context(), provider)
	if err != nil {
		t.Fatal(err)
	}
	store.save("used")
	all := g.join(3)
	every := func(what string, is func(st consumer.Status) bool) {
		t.Helper()
		for _, m := range all {
			g.await("every instance "+what, func() bool { return is(m.limiter.Status()) })
		}
	}
	active := func(total int64) func(consumer.Status) bool {
		return func(st consumer.Status) bool {
			return st.State == quota.StateActive && st.Shortest().Limit.Permits == total && st.Shortest().Share == total/3
		}
	}
	every("is active", active(60))
	g.set(exact(t, "30/200ms", 500*ms))
	every("has the change", active(30))
	incarnation := all[0].limiter.Status().Incarnation
	store.restore("used")
	began := time.Now()
	every("obeys the policy that was restored", func(st consumer.Status) bool {
		return active(60)(st) && st.PolicyRevision == before.Revision && st.Instances == 3
	})
	t.Logf("active by the restored policy %v after etcd was back", time.Since(began).Round(10*ms))
	if all[0].limiter.Status().Incarnation == incarnation {
		t.Error("an instance goes on under a key that the restored store never had")
	}
}

// budget returns the use of the longest limit.
func (m *member) budget() consumer.LimitUse {
	l := m.limiter.Status().Limits
	if len(l) == 0 {
		return consumer.LimitUse{}
	}
	return l[len(l)-1]
}

// inDays is exact, by the days of a time zone whose day does not end soon.
func inDays(t *testing.T, limits string) quota.Policy {
	t.Helper()
	p := exact(t, limits, 500*ms)
	if time.Now().UTC().Hour() == 23 {
		p.Zone = "Etc/GMT+9"
	}
	return p
}

// spent waits until a newcomer, which has read what is in etcd, finds nothing left, or all of it withheld. Then
// n permits were issued.
func (g *group) spent(n int64) {
	g.t.Helper()
	m := g.join(1)[0]
	g.await("a newcomer finds nothing left", func() bool {
		var limited consumer.LimitError
		err := m.limiter.Acquire(g.t.Context(), 0)
		return errors.As(err, &limited) && limited.Window.Length == 24*time.Hour &&
			(time.Until(limited.RetryAt) > 2*time.Second || strings.Contains(err.Error(), "nothing more of"))
	})
	if got := g.issued.total(); got != n {
		g.t.Errorf("%d permits were issued, want %d", got, n)
	}
}

// awaitIssued waits until so many permits are issued.
func (g *group) awaitIssued(n int64) {
	g.t.Helper()
	g.await("so many permits are issued", func() bool { return g.issued.total() >= n })
}

// awaitWithheld waits until the instance knows that nothing more of the day is handed out.
func (m *member) awaitWithheld() {
	m.g.t.Helper()
	m.g.await("the window is withheld", func() bool { return m.budget().Withheld != "" })
}

// mark reads the provider's mark.
func (g *group) mark() (escrow.MarkAt, error) {
	k, err := keys.New(g.prefix)
	if err != nil {
		return escrow.MarkAt{}, err
	}
	r, err := g.client.Get(g.t.Context(), k.BudgetMark(provider))
	if err != nil || len(r.Kvs) != 1 {
		return escrow.MarkAt{}, errors.Join(err, errors.New("there is no mark"))
	}
	return escrow.ReadMark(r.Kvs[0].Value, r.Kvs[0].ModRevision, r.Header.ClusterId), nil
}

// remark has an operator say something of the store.
func (g *group) remark(say func(m escrow.MarkAt, now int64, bound time.Duration) escrow.Mark) {
	g.t.Helper()
	k, err := keys.New(g.prefix)
	if err != nil {
		g.t.Fatal(err)
	}
	mark, err := g.mark()
	if err != nil {
		g.t.Fatal(err)
	}
	said, err := escrow.Encode(say(mark, time.Now().UnixNano(), quota.DefaultClockError))
	if err != nil {
		g.t.Fatal(err)
	}
	if _, err := g.client.Put(g.t.Context(), k.BudgetMark(provider), said); err != nil {
		g.t.Fatal(err)
	}
}

// dayTotal reads the day's total.
func (g *group) dayTotal() (total escrow.Total, err error) {
	k, err := keys.New(g.prefix)
	if err != nil {
		return total, err
	}
	r, err := g.client.Get(g.t.Context(), k.BudgetTotals(provider, "d"), clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		return total, errors.Join(err, fmt.Errorf("%d totals", len(r.Kvs)))
	}
	return escrow.Decode[escrow.Total](r.Kvs[0].Value)
}

// beyondBackup saves a backup of a store in which an instance uses limits of days ("used") and of one before that ("unused"), and has it use 20 permits more.
func beyondBackup(t *testing.T, limits string) (store *backups, g *group, m *member) {
	t.Helper()
	store, client := newBackups(t)
	g = newGroup(t, client, inDays(t, limits))
	store.save("unused")
	m = g.join(1)[0]
	g.awaitIssued(5)
	store.save("used")
	g.awaitIssued(g.issued.total() + 20)
	return store, g, m
}

// A copy of etcd's files is put back after permits were taken, also after the fleet has run for a while on one that knows of
// none: nothing more is handed out, neither to those that know of more nor to newcomers, until an operator says what was used.
func TestABudgetInARestoredStore(t *testing.T) {
	t.Parallel()
	for name, unused := range map[string]bool{"at once": false, "after one that counts nothing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, g, m := beyondBackup(t, "1/200ms,200/d")
			if unused {
				store.restore("unused")
				m.awaitWithheld()
			}
			store.restore("used")
			g.await("the instance has marked the old store", func() bool { mark, err := g.mark(); return err == nil && mark.Before != 0 })
			m.awaitWithheld()
			g.await("the instance has nothing in hand", func() bool { return m.budget().Left == 0 })
			g.spent(g.issued.total())
		})
	}
}

// The same where no process lives that knows of more, so that nobody can notice it: once an operator has said so, the
// count of the backup, which is too low, hands out nothing more.
func TestARestoredStoreThatNobodyKnows(t *testing.T) {
	t.Parallel()
	store, g, m := beyondBackup(t, "1/200ms,50/d")
	if err := m.session.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	used := g.issued.total()
	store.restore("used")
	g.remark(escrow.MarkAt.Withholding) // as quota-admin budget P --withhold
	g.spent(used)
	total, err := g.dayTotal()
	if err != nil || total.Out >= used {
		t.Fatalf("the backup counts %d of %d, %v", total.Out, used, err)
	}
}

// Etcd loses its data while callers want more of a key's day than is in hand, and only then somebody sets the limits again.
// The instances that have lived through it learn that the day is withheld, and go on once its counts are given: nobody has
// to start them anew, or to wait for the next day.
func TestKeysGoOnAfterEtcdHasLostItsData(t *testing.T) {
	t.Parallel()
	store, client := newBackups(t)
	store.save("empty")
	p := inDays(t, "3000/200ms")
	p.Settle = quota.DefaultSettle // proofs last longer: one that comes late would have sessions look
	p.Keys = quota.Keys{Limits: []quota.Limit{{Permits: 1000, Window: 24 * time.Hour}}}
	g := newGroup(t, client, p)
	all := g.join(2)
	for _, m := range all {
		m.stop() // the key is the load
	}
	served := func(what string) {
		t.Helper()
		for _, m := range all {
			g.await(what, m.limiter.Key("x").TryAcquire)
		}
	}
	refused := func(what string, n int64, because error, says string) {
		t.Helper()
		for _, m := range all {
			g.await(what, func() bool {
				_, err := m.limiter.Key("x").Take(t.Context(), n, 0)
				return errors.Is(err, because) && strings.Contains(err.Error(), says)
			})
		}
	}
	served("the key has some")
	store.swapped(func() error {
		refused("an instance asks etcd in vain", 1000, consumer.ErrStale, "")
		return store.put("empty")
	})
	refused("an instance knows that there is no limit", 1, consumer.ErrNoPolicy, "")
	g.pass(3 * time.Second) // meanwhile sessions look whether more is wanted
	g.set(p)
	refused("the key is withheld", 1, consumer.ErrLimited, "nothing more of 1000/d is handed out")
	g.remark(escrow.MarkAt.WithKeysTold) // as quota-admin budget P --keys-unused
	served("the key has some again")
}
