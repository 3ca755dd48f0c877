package admin_test

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// A program sets a provider's limit. It needs an etcd, so it is compiled and not
// run; examples/quickstart is an application that keeps to the limit.
func ExampleClient_Put() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		return
	}
	defer client.Close()
	operator, err := admin.New(client, admin.Options{})
	if err != nil {
		return
	}
	limits, err := quota.ParseLimits("500/2s,10000/1m")
	if err != nil {
		return
	}
	stored, err := operator.Put(context.Background(), "payments/charge", quota.Policy{Limits: limits, Reason: "campaign"})
	fmt.Println(stored.Revision, err)
}
