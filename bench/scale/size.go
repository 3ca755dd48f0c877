package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// calm is how long the first reports of a fleet are given.
const calm = 8 * time.Second

// result is what was measured of one size.
type result struct {
	n    int
	load float64 // of the machine in the minute before, without the fleet

	// The storm: all join at once.
	registered, active time.Duration // the last one, since the order
	retries            int64
	again              int64 // histories begun anew: leases lost, gaps
	storm              reading
	stormCPU           time.Duration // of the fleet
	stormEvents        int64
	applying           time.Duration // of stormEvents, in the limiters

	// Steady.
	steady    reading
	elapsed   time.Duration
	steadyCPU time.Duration
	resident  int // of the fleet

	// Changes.
	change    reading // of all together
	changeCPU time.Duration
	changes   int
	spent     time.Duration
	each      []time.Duration // from set to an instance, sorted
	last      []time.Duration // from set to the last instance, sorted
}

// fleet is a running fleet with its etcd.
type fleet struct {
	etcd   *etcdtest.Cluster
	client *clientv3.Client
	admin  *coordinator.Admin
	crews  []*crew
}

func measureSize(ctx context.Context, n int, o options) (r result, err error) {
	r.n, r.load = n, load()
	var f fleet
	// etcd's own timers are those of a real one; it does not sync its disk.
	if f.etcd, err = etcdtest.Start(etcdtest.Options{Processes: true, Slow: true}); err != nil {
		return r, err
	}
	defer f.etcd.Close()
	if f.client, err = f.etcd.Client(); err != nil {
		return r, err
	}
	defer f.client.Close()
	if f.admin, err = coordinator.NewAdmin(f.client, coordinator.AdminOptions{Author: "scale"}); err != nil {
		return r, err
	}
	if _, err = f.set(ctx, o, n, 0); err != nil {
		return r, err
	}
	if f.crews, err = startCrews(n, f.etcd.Endpoints(), o); err != nil {
		return r, err
	}
	defer func() { endCrews(f.crews) }()
	if err = f.storm(ctx, &r); err != nil {
		return r, err
	}
	if err = f.watch(ctx, &r, o.steady); err != nil {
		return r, err
	}
	return r, f.change(ctx, &r, o)
}

// set sets a limit of 100 permits a second for each instance, and i more.
func (f *fleet) set(ctx context.Context, o options, n, i int) (revision int64, err error) {
	stored, err := f.admin.Put(ctx, provider, quota.Policy{
		Limits: []quota.Limit{{Permits: int64(100*n + i), Window: time.Second}}, Settle: o.settle, Freshness: o.freshness,
	}, coordinator.AnyRevision)
	return stored.Revision, err
}

// read returns what etcd and the fleet have used so far.
func (f *fleet) read(ctx context.Context) (reading, answer, error) {
	a, err := ask(f.crews, order{Do: "use"})
	if err != nil {
		return reading{}, a, err
	}
	r, err := readEtcd(ctx, f.etcd.Endpoints()[0])
	return r, a, err
}

func (f *fleet) storm(ctx context.Context, r *result) error {
	etcd, fleet, err := f.read(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	a, err := ask(f.crews, order{Do: "join"})
	if err != nil {
		return err
	}
	r.registered = time.Unix(0, slices.Max(a.Registered)).Sub(began)
	r.active = time.Unix(0, slices.Max(a.Ready)).Sub(began)
	r.retries = a.Retries
	etcd2, fleet2, err := f.read(ctx)
	r.storm, r.stormCPU, r.stormEvents = etcd2.since(etcd), fleet2.CPU-fleet.CPU, fleet2.Events
	r.applying, r.again = fleet2.Applying, fleet2.Listings-int64(r.n)
	return err
}

func (f *fleet) watch(ctx context.Context, r *result, d time.Duration) error {
	if err := pause(ctx, calm); err != nil {
		return err
	}
	etcd, fleet, err := f.read(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, d); err != nil {
		return err
	}
	etcd2, fleet2, err := f.read(ctx)
	r.steady, r.elapsed = etcd2.since(etcd), etcd2.at.Sub(etcd.at)
	r.steadyCPU, r.resident = fleet2.CPU-fleet.CPU, fleet2.Resident
	return err
}

func (f *fleet) change(ctx context.Context, r *result, o options) error {
	etcd, fleet, err := f.read(ctx)
	if err != nil {
		return err
	}
	for i := range o.changes {
		began := time.Now()
		revision, err := f.set(ctx, o, r.n, i+1)
		if err != nil {
			return err
		}
		a, err := ask(f.crews, order{Do: "applied", Revision: revision})
		if err != nil {
			return err
		}
		if len(a.Applied) != r.n {
			return fmt.Errorf("%d of %d instances answered", len(a.Applied), r.n)
		}
		for _, at := range a.Applied {
			r.each = append(r.each, time.Unix(0, at).Sub(began))
		}
		r.last = append(r.last, time.Unix(0, slices.Max(a.Applied)).Sub(began))
		if err := pause(ctx, max(0, time.Second-time.Since(began))); err != nil {
			return err
		}
	}
	etcd2, fleet2, err := f.read(ctx)
	r.change, r.changeCPU, r.changes = etcd2.since(etcd), fleet2.CPU-fleet.CPU, o.changes
	r.spent = etcd2.at.Sub(etcd.at)
	slices.Sort(r.each)
	slices.Sort(r.last)
	return err
}

// load returns the machine's load average of a minute, 0 if it does not tell.
func load() float64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	l, err := fs.LoadAvg()
	if err != nil {
		return 0
	}
	return l.Load1
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
