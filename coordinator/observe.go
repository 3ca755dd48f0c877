package coordinator

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// observerTTL is how long an observer counts that ended without a word.
const observerTTL = 10 // seconds

// observation is one call of Observe. Its keys live under one lease; when that
// is lost, as in an outage of etcd that is longer than it lasts, they are
// written anew.
type observation struct {
	a         *Admin
	providers []string
	lease     clientv3.LeaseID // owned by the goroutine; its ID after that ended
}

// Observe tells the instances of the providers that somebody looks, so that they
// report once a second, until stop is called or ctx ends; an outage of etcd only
// interrupts it. They notice within a few seconds. Whoever may not write that
// gets an error, and the reports that come anyway: on significant changes, and
// every 30 seconds.
func (a *Admin) Observe(ctx context.Context, providers ...string) (stop func(), err error) {
	alive, end := context.WithCancel(ctx)
	o := &observation{a: a, providers: providers}
	answers, err := o.begin(alive)
	if err != nil {
		end()
		o.revoke(ctx)
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.keep(alive, answers)
	}()
	return func() {
		end()
		<-done
		o.revoke(ctx)
	}, nil
}

// begin writes the keys under a new lease, which is kept alive until ctx ends.
func (o *observation) begin(ctx context.Context) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	attempt := "look at " + strings.Join(o.providers, ", ")
	c, cancel := context.WithTimeout(ctx, o.a.o.Timeout)
	defer cancel()
	lease, err := o.a.client.Grant(c, observerTTL)
	if err != nil {
		return nil, classify(ctx, attempt, err)
	}
	o.lease = lease.ID
	for _, p := range o.providers {
		if err := quota.ValidateProvider(p); err != nil {
			return nil, err
		}
		if _, err := o.a.client.Put(c, o.a.keys.Observer(p, rand.Text()), "{}", clientv3.WithLease(lease.ID)); err != nil {
			return nil, classify(ctx, "look at "+p, err)
		}
	}
	answers, err := o.a.client.KeepAlive(ctx, lease.ID)
	return answers, classify(ctx, attempt, err)
}

// keep takes the answers to the lease's renewals, and begins again when there
// are no more, until ctx ends.
func (o *observation) keep(ctx context.Context, answers <-chan *clientv3.LeaseKeepAliveResponse) {
	for {
		for range answers { // they need only be taken
		}
		if !sleep(ctx, time.Second) {
			return
		}
		o.revoke(ctx) // keys of an attempt that got half way
		if next, err := o.begin(ctx); err == nil {
			answers = next // else those that have ended
		}
	}
}

// revoke removes the keys, if etcd answers; else they end by themselves.
func (o *observation) revoke(ctx context.Context) {
	if o.lease == clientv3.NoLease {
		return
	}
	c, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = o.a.client.Revoke(c, o.lease)
	o.lease = clientv3.NoLease
}
