package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// observerTTL is how long an observer counts that ended without a word.
const observerTTL = 10 // seconds

// Observe makes the instances of the providers report once a second, until stop is called
// or ctx ends. They begin within a few seconds. An outage of etcd interrupts that. stop
// waits at most a second for etcd, and may be called twice. A user without the permission to
// write gets ErrPermission: reports then come on significant changes, and every 30 s.
func (a *Client) Observe(ctx context.Context, providers ...string) (stop func(), err error) {
	for _, p := range providers {
		if err := quota.ValidateProvider(p); err != nil {
			return nil, err
		}
	}
	lease, err := a.observe(ctx, providers)
	if err != nil {
		return nil, err
	}
	alive, end := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { a.revoke(ctx, lease) }()
		tick := time.NewTicker(observerTTL / 3 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-alive.Done():
				return
			case <-tick.C:
			}
			c, cancel := context.WithTimeout(alive, a.o.Timeout)
			_, err := a.client.KeepAliveOnce(c, lease)
			cancel()
			if errors.Is(err, rpctypes.ErrLeaseNotFound) { // an outage of etcd was longer than it lasts
				lease, _ = a.observe(alive, providers)
			}
		}
	}()
	return func() { end(); <-done }, nil
}

// observe writes the keys under a new lease.
func (a *Client) observe(ctx context.Context, providers []string) (clientv3.LeaseID, error) {
	c, cancel := context.WithTimeout(ctx, a.o.Timeout)
	defer cancel()
	lease, err := a.client.Grant(c, observerTTL)
	if err != nil {
		return clientv3.NoLease, classify(ctx, "look at "+strings.Join(providers, ", "), err)
	}
	for _, p := range providers {
		if _, err = a.client.Put(c, a.keys.Observer(p, rand.Text()), "{}", clientv3.WithLease(lease.ID)); err != nil {
			a.revoke(ctx, lease.ID)
			break
		}
	}
	return lease.ID, classify(ctx, "look at "+strings.Join(providers, ", "), err)
}

// revoke removes an observer's keys, if etcd answers; else they end by themselves.
func (a *Client) revoke(ctx context.Context, lease clientv3.LeaseID) {
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = a.client.Revoke(c, lease)
}
