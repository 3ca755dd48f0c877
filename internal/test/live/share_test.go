package live_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// atLeast waits until a window that starts from now on has at least n permits.
func (g *group) atLeast(length time.Duration, n int64) {
	g.t.Helper()
	from := time.Now().UnixNano()
	g.await(fmt.Sprintf("a window of %v with at least %d permits", length, n), func() bool {
		g.ledger.mu.Lock()
		defer g.ledger.mu.Unlock()
		for w, issued := range g.ledger.issued {
			if w.Length == length && w.Start() >= from && issued >= n {
				return true
			}
		}
		return false
	})
}

// settleToDivide leaves time to read the reports and to write a level, also on a
// busy machine: a level that takes longer than the freshness is not written.
const settleToDivide = 2 * time.Second

// TestWhoAsksGetsWhatOthersLeave: when most instances fall silent the one that is
// left gets nearly all, and who wakes has its part of the floor at once.
func TestWhoAsksGetsWhatOthersLeave(t *testing.T) {
	t.Parallel()
	p := exact(t, "600/200ms", settleToDivide)
	p.Share = quota.ShareDemand
	g, all := loaded(t, p, 6, 600)
	for _, m := range all[1:] {
		m.stop()
	}
	g.atLeast(200*ms, 540) // of 600, 60 are divided equally
	woken := all[5].limiter
	if got := woken.TryTake(1).N(); got != 1 {
		// Its window may just have been left to it by others: one more is enough.
		g.await("who wakes has a permit", func() bool { return woken.TryAcquire() })
	}
	lowered := p.Clone()
	lowered.Limits[0].Permits = 300
	g.set(lowered)
	g.atLeast(200*ms, 270)
	g.end()
}

// TestTheNextOldestDividesWhenTheOldestIsGone: levels go on being written.
func TestTheNextOldestDividesWhenTheOldestIsGone(t *testing.T) {
	t.Parallel()
	p := exact(t, "600/200ms", settleToDivide)
	p.Share = quota.ShareDemand
	g := newGroup(t, p, 200*ms)
	all := g.join(4)
	g.ready(all...)
	author := func() string {
		v, err := g.admin.Fleet(t.Context(), provider, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.Level == nil {
			return ""
		}
		return v.Level.Author
	}
	// Who is the oldest is told by etcd: keys are written when they can be, and a
	// busy machine may lose a lease.
	oldest := func() *member {
		r, err := g.client.Get(t.Context(), g.prefix+"providers/"+provider+"/instances/", clientv3.WithPrefix(),
			clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			for _, m := range all {
				if strings.HasSuffix(string(kv.Key), "/"+url.PathEscape(m.limiter.Status().Incarnation)) {
					return m
				}
			}
		}
		return nil
	}
	divides := func() (m *member) {
		g.await("the oldest divides", func() bool {
			m = oldest()
			return m != nil && author() == m.limiter.Status().Incarnation
		})
		return m
	}
	for range 2 {
		m := divides()
		m.stop()
		if err := m.session.Close(); err != nil {
			t.Fatal(err)
		}
	}
	divides().stop()
	g.atLeast(200*ms, 530) // of 600, 60 for two to divide equally
	g.end()
}

func TestAHeavyInstanceGetsItsWeight(t *testing.T) {
	t.Parallel()
	p := exact(t, "700/200ms", 500*ms)
	p.Share = quota.ShareWeighted
	g := newGroup(t, p, 200*ms)
	all := g.join(4)
	heavy := g.joinAs(g.client, coordinator.Options{Name: "heavy", Weight: 3})
	all = append(all, heavy)
	g.ready(all...)
	g.awaitFull(200*ms, 700)
	if st := heavy.limiter.Status(); st.Shortest().Share != 300 || all[0].limiter.Status().Shortest().Share != 100 {
		t.Errorf("the heavy one has %d of 700, another one %d, want 300 and 100", st.Shortest().Share, all[0].limiter.Status().Shortest().Share)
	}
	p.Weights = map[string]int64{"heavy": 10}
	g.set(p)
	g.await("an operator's weight is in force", func() bool { return heavy.limiter.Status().Shortest().Share == 500 })
	g.awaitFull(200*ms, 700)
	g.end()
}
