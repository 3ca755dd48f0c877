//go:build e2e

package live_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// All three members stand still for longer than the freshness S'. Rule stop
// issues nothing for windows that start S' after, and resumes by itself, even
// though its leases have run out; rule hold goes on all the time. Nothing is
// exceeded.
func TestThreeMembersStandStill(t *testing.T) {
	cluster, client := etcdtest.New(t, embedded.Options{Members: 3, Processes: true})
	policy := exact(t, "60/200ms", quota.DefaultSettle)
	stop := newGroup(t, client, policy)
	stop.ttl = 2 * time.Second
	policy = exact(t, "100/s", quota.DefaultSettle)
	policy.Outage = quota.OutageHold
	hold := newGroup(t, client, policy)
	held := hold.join(4)
	stopped := stop.join(4)
	stop.ready(stopped...)
	hold.ready(held...)
	stop.awaitFull(60)
	hold.awaitFull(100)
	for i := range 3 {
		if err := cluster.Pause(i); err != nil {
			t.Fatal(err)
		}
	}
	stale := time.Now().Add(quota.DefaultFreshness).UnixNano()
	stop.await("all are stale", func() bool {
		for _, m := range stopped {
			if m.limiter.Status().State != quota.StateStale {
				return false
			}
		}
		return true
	})
	stop.await("rule hold uses three more windows", func() bool { return hold.issued.full(stale, 100) >= 3 })
	if n := stop.issued.full(stale, 1); n != 0 {
		t.Errorf("rule stop: permits of %d windows were issued that start %v after the members stood still", n, quota.DefaultFreshness)
	}
	for i := range 3 {
		if err := cluster.Resume(i); err != nil {
			t.Fatal(err)
		}
	}
	stop.awaitFull(60)
	hold.awaitFull(100)
}

// etcd is stopped as systemctl, docker and Ctrl-C do it: it refuses requests, and waits for the
// streams that are open for longer than a lease lasts. Under the outage rule hold no window has
// less than the shares of those that call, and soon after etcd is back the idle one lends again.
func TestStoppedGracefully(t *testing.T) {
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d members", members), func(t *testing.T) {
			cluster, client := etcdtest.New(t, embedded.Options{Members: members, Processes: true, Slow: true, Gateway: true})
			policy := exact(t, "100/s", quota.DefaultSettle)
			policy.Outage = quota.OutageHold
			g := newGroup(t, client, policy)
			g.ttl = 0 // the default
			var all []*member
			for range 4 {
				all = append(all, g.joinAs(etcdtest.NewClient(t, cluster), coordinator.Options{}))
			}
			g.ready(all...)
			all[0].stop() // the others borrow its share
			g.awaitFull(100)
			stopped := time.Now()
			for i := range members {
				cluster.Terminate(i)
			}
			g.pass(20 * time.Second)
			for i := range members {
				cluster.Stop(i)
			}
			if err := cluster.Restart(); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			g.pass(10 * time.Second)
			for start := stopped.Truncate(time.Second); start.Before(back.Add(9 * time.Second)); start = start.Add(time.Second) {
				n, least := g.issued.of(start), int64(75)
				if start.After(back.Add(3 * time.Second)) {
					least = 100
				}
				if t.Logf("%5.1f s: %d", start.Sub(stopped).Seconds(), n); n < least {
					t.Errorf("%d permits, want at least %d, %v after etcd was back", n, least, start.Sub(back))
				}
			}
		})
	}
}
