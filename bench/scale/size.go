package main

import (
	"context"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	processes = 4                // that the instances are spread over
	patience  = 2 * time.Minute  // bounds every wait for the fleet
	calm      = 8 * time.Second  // for the first reports of a fleet
	watched   = 30 * time.Second // while nothing happens
	changes   = 20               // limits to set, one a second
)

// used is what etcd and the fleet have used.
type used struct {
	etcd  reading
	fleet answer
}

// result is what was measured of one size.
type result struct {
	n      int
	active time.Duration // from the order to join until the last one is active
	storm  used          // in that time
	steady used          // while nothing happens
	last   []time.Duration
}

// fleet is a running fleet with its etcd.
type fleet struct {
	etcd  *etcdtest.Cluster
	admin *coordinator.Admin
	crews []*crew
}

func measureSize(ctx context.Context, n int, o options) (r result, err error) {
	r.n = n
	var f fleet
	// etcd's own timers are those of a real one; it does not sync its disk.
	if f.etcd, err = etcdtest.Start(etcdtest.Options{Processes: true, Slow: true}); err != nil {
		return r, err
	}
	defer f.etcd.Close()
	client, err := f.etcd.Client()
	if err != nil {
		return r, err
	}
	defer client.Close()
	if f.admin, err = coordinator.NewAdmin(client, coordinator.AdminOptions{Author: "scale"}); err != nil {
		return r, err
	}
	if _, err = f.set(ctx, o, n, 0); err != nil {
		return r, err
	}
	f.crews, err = startCrews(n, f.etcd.Endpoints(), o)
	defer func() {
		for _, c := range f.crews {
			c.Kill() // without notice: leases clean up
		}
	}()
	if err != nil {
		return r, err
	}
	began := time.Now()
	var joined answer
	if r.storm, err = f.uses(ctx, func() (err error) {
		joined, err = ask(f.crews, func(c *crew) order { return order{Setup: &c.setup} })
		return err
	}); err != nil {
		return r, err
	}
	r.active = time.Unix(0, joined.At).Sub(began)
	if err = pause(ctx, calm); err != nil {
		return r, err
	}
	if r.steady, err = f.uses(ctx, func() error { return pause(ctx, watched) }); err != nil {
		return r, err
	}
	return r, f.change(ctx, &r, o)
}

// set sets a limit of 100 permits a second for each instance, and i more.
func (f *fleet) set(ctx context.Context, o options, n, i int) (revision int64, err error) {
	stored, err := f.admin.Put(ctx, provider, quota.Policy{
		Limits: []quota.Limit{{Permits: int64(100*n + i), Window: time.Second}}, Settle: o.Settle, Freshness: o.Freshness,
	}, coordinator.AnyRevision)
	return stored.Revision, err
}

// uses returns what etcd and the fleet use while f runs.
func (f *fleet) uses(ctx context.Context, do func() error) (u used, err error) {
	use := func(*crew) order { return order{Use: true} }
	before, err := ask(f.crews, use)
	if err != nil {
		return u, err
	}
	etcd, err := readEtcd(ctx, f.etcd.Endpoints()[0])
	if err != nil {
		return u, err
	}
	if err := do(); err != nil {
		return u, err
	}
	if u.fleet, err = ask(f.crews, use); err != nil {
		return u, err
	}
	u.fleet.CPU -= before.CPU
	u.etcd, err = readEtcd(ctx, f.etcd.Endpoints()[0])
	u.etcd = u.etcd.since(etcd)
	return u, err
}

// change sets limits, and measures how long the last instance takes to apply each.
func (f *fleet) change(ctx context.Context, r *result, o options) error {
	for i := range changes {
		began := time.Now()
		revision, err := f.set(ctx, o, r.n, i+1)
		if err != nil {
			return err
		}
		a, err := ask(f.crews, func(*crew) order { return order{Applied: revision} })
		if err != nil {
			return err
		}
		r.last = append(r.last, time.Unix(0, a.At).Sub(began))
		if err := pause(ctx, time.Second-time.Since(began)); err != nil {
			return err
		}
	}
	slices.Sort(r.last)
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
