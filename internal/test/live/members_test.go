//go:build e2e

package live_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/test/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// oldestProof follows the proofs of all members until the load ends, and returns
// a function that tells the age of the oldest that there was.
func (g *group) oldestProof(all []*member) func() time.Duration {
	oldest := make(chan time.Duration, 1)
	g.load.Go(func() {
		worst := time.Duration(0)
		for g.ctx.Err() == nil {
			for _, m := range all {
				worst = max(worst, m.limiter.Status().ProofAge)
			}
			<-time.After(10 * time.Millisecond)
		}
		oldest <- worst
	})
	return func() time.Duration { return <-oldest }
}

func incarnations(all []*member) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.limiter.Status().Incarnation)
	}
	return ids
}

// The leader of three members is killed under rule stop: nothing stops and nobody
// registers anew. The freshness leaves time for an election on a busy machine;
// the log says how much of it was needed.
func TestThreeMembersLoseTheirLeader(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{Members: 3, Processes: true})
	p := exact(t, "100/s", 8*time.Second)
	p.Freshness = 7 * time.Second
	g := newGroupOn(t, client, p, time.Second)
	all := g.join(5)
	g.ready(all...)
	before := incarnations(all)
	began := g.awaitFull(time.Second, 100).Start()
	oldest := g.oldestProof(all)
	leader := cluster.Leader(t.Context())
	if err := cluster.Kill(leader); err != nil {
		t.Fatal(err)
	}
	g.pass(8 * time.Second)
	end := time.Now().UnixNano()
	g.stop()
	t.Logf("the oldest proof was %v old; the default freshness is %v", oldest().Round(time.Millisecond), quota.DefaultFreshness)
	g.ledger.never(t)
	g.ledger.always(t, time.Second, began, end, 100)
	for i, id := range incarnations(all) {
		if id != before[i] {
			t.Errorf("%s had to register anew, as %s", before[i], id)
		}
	}
}

// All three members stand still for longer than the freshness S'. Rule stop
// issues nothing for windows that start S' after, and resumes by itself, even
// though its leases have run out; rule hold goes on all the time. Nothing is
// exceeded.
func TestThreeMembersStandStill(t *testing.T) {
	cluster, client := etcdtest.New(t, etcdtest.Options{Members: 3, Processes: true})
	policy := exact(t, "60/200ms", quota.DefaultSettle)
	stop := newGroupOn(t, client, policy, 200*ms)
	stop.ttl = 2 * time.Second
	policy = exact(t, "100/s", quota.DefaultSettle)
	policy.Outage = quota.OutageHold
	hold := newGroupOn(t, client, policy, time.Second)
	held := hold.join(4)
	stopped := stop.join(4)
	stop.ready(stopped...)
	hold.ready(held...)
	stop.awaitFull(200*ms, 60)
	began := hold.awaitFull(time.Second, 100).Start()
	for i := range 3 {
		if err := cluster.Pause(i); err != nil {
			t.Fatal(err)
		}
	}
	stale := time.Now().Add(quota.DefaultFreshness)
	stop.await("all are stale", func() bool {
		for _, m := range stopped {
			if m.limiter.Status().State != quota.StateStale {
				return false
			}
		}
		return true
	})
	stop.passes(stale.UnixNano())
	hold.awaitFull(time.Second, 100)
	stop.pass(2 * time.Second)
	if n := stop.ledger.since(stale.UnixNano()); n != 0 {
		t.Errorf("rule stop: %d permits were issued for windows that start %v after the members stood still", n, quota.DefaultFreshness)
	}
	for i := range 3 {
		if err := cluster.Resume(i); err != nil {
			t.Fatal(err)
		}
	}
	stop.awaitFull(200*ms, 60)
	hold.awaitFull(time.Second, 100)
	end := time.Now().UnixNano()
	stop.stop()
	hold.stop()
	stop.ledger.never(t)
	hold.ledger.never(t)
	hold.ledger.always(t, time.Second, began, end, 100)
}

// always reports the windows of a length, between two instants, for which not
// all of the total was issued.
func (l *ledger) always(t *testing.T, length time.Duration, from, to, total int64) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	w := quota.WindowAt(length, from+int64(length)-1)
	judged := 0
	for ; w.End() <= to; w.Index++ {
		judged++
		if n := l.issued[w]; n > total || n+l.unsure[w] < total {
			t.Errorf("window %v from %v: %d of %d issued, and %d of which nobody knows the window", w.Length, time.Unix(0, w.Start()), n, total, l.unsure[w])
		}
	}
	if judged < 3 {
		t.Errorf("only %d windows could be judged", judged)
	}
}
