//go:build e2e

package live_test

import (
	"testing"
	"time"

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
