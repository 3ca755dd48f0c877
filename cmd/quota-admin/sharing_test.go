package main

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// sharingFleet has three instances.
func sharingFleet(b *bench, client *clientv3.Client) {
	b.want(exitDone, "set", "payments/charge", "999/s")
	for i := range 3 {
		id, name := fmt.Sprintf("worker-%d-7f-%d", i+1, i), fmt.Sprintf("worker-%d", i+1)
		b.put(client, "providers/payments%2Fcharge/instances/"+id, protocol.Instance{Name: name})
		b.put(client, "reports/payments%2Fcharge/"+id, protocol.Report{
			Schema: 1, Name: name, State: quota.StateActive, Share: 1, Time: time.Now().Add(time.Hour)})
	}
}
