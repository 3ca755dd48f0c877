package coordinator

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/quotient-limiter/quotient/quota"
)

// observerTTL is how long an observer counts that ended without a word.
const observerTTL = 10 // seconds

// Observe makes the instances of the providers report once a second, until stop is called
// or ctx ends. They begin within a few seconds; an outage of etcd only interrupts it. A
// user without the permission to write gets an error. Reports then come on significant
// changes, and every 30 seconds.
func (a *Admin) Observe(ctx context.Context, providers ...string) (stop func(), err error) {
	for _, p := range providers {
		if err := quota.ValidateProvider(p); err != nil {
			return nil, err
		}
	}
	alive, end := context.WithCancel(ctx)
	lease, err := a.observe(alive, providers)
	if err != nil {
		end()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lease != nil {
			<-lease.Done() // at the end, or lost, as in an outage of etcd that is longer than it lasts
			a.revoke(ctx, lease.Lease())
			for lease = nil; lease == nil && sleep(alive, time.Second); {
				lease, _ = a.observe(alive, providers)
			}
		}
	}()
	return func() { end(); <-done }, nil
}

// observe writes the keys under a new lease, which is kept alive until ctx ends.
func (a *Admin) observe(ctx context.Context, providers []string) (*concurrency.Session, error) {
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	granted, err := a.client.Grant(c, observerTTL)
	if err != nil {
		return nil, classify(ctx, "look at "+strings.Join(providers, ", "), err)
	}
	for _, p := range providers {
		if _, err = a.client.Put(c, a.keys.Observer(p, rand.Text()), "{}", clientv3.WithLease(granted.ID)); err != nil {
			break
		}
	}
	var lease *concurrency.Session
	if err == nil {
		lease, err = concurrency.NewSession(a.client, concurrency.WithLease(granted.ID), concurrency.WithContext(ctx))
	}
	if err != nil {
		a.revoke(ctx, granted.ID)
	}
	return lease, classify(ctx, "look at "+strings.Join(providers, ", "), err)
}

// revoke removes an observer's keys, if etcd answers; else they end by themselves.
func (a *Admin) revoke(ctx context.Context, lease clientv3.LeaseID) {
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = a.client.Revoke(c, lease)
}
