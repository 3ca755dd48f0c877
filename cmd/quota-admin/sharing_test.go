package main

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// demandingFleet shares by demand: one instance asks for much, one for some, one
// for nothing, and a level is in force.
func demandingFleet(b *bench, client *clientv3.Client) {
	b.want(exitDone, "set", "payments/charge", "1000/s", "--share", "demand")
	demands := map[string]int64{}
	for i, demand := range []int64{843_776, 120_000, 0} {
		id := fmt.Sprintf("worker-%d-7f-%d", i+1, i)
		demands[id] = demand
		name := fmt.Sprintf("worker-%d", i+1)
		b.put(client, "providers/payments%2Fcharge/instances/"+id, protocol.Instance{Name: name, Weight: int64(i + 1)})
		b.put(client, "reports/payments%2Fcharge/"+id, protocol.Report{
			Schema: 1, Name: name, State: quota.StateActive, Share: 1, Demand: demand, Time: time.Now().Add(time.Hour)})
	}
	r, err := client.Get(context.Background(), b.prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	// Of 1000 a hundred are divided equally; 33 of them are an instance's base. What
	// is left over, 102, can be divided by three: shares are the same in every window.
	b.put(client, "providers/payments%2Fcharge/level", protocol.Level{
		Until: time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC), Author: "worker-1-7f-0",
		Entries: []protocol.LevelEntry{share.NewEntry(demands, r.Header.Revision, time.Unix(1, 0))},
	})
}
