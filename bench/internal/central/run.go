// Package central measures what is usually done instead of Quotient: a counter in
// Redis that every instance asks. It starts a redis-server of its own.
package central

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/fleet"
	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// callers ask one call after the other.
const callers = 16

// run is one run of this part.
type run struct {
	o    measure.Options
	each time.Duration // for one measurement
	rows [][]string
	bars []report.Bar
}

// Run measures and reports.
func Run(ctx context.Context, o measure.Options) (*report.Section, error) {
	sec := &report.Section{Title: "A counter in Redis"}
	r := &run{o: o, each: 1500 * time.Millisecond}
	instances := 96
	if o.Quick {
		r.each, instances = 100*time.Millisecond, 12
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		sec.Text("Left out: there is no redis-server on this machine (Debian: apt-get install redis-server).")
		return sec, nil //nolint:nilerr // the results say what they lack, and why
	}
	for _, c := range counters() {
		if err := r.counter(ctx, c); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	if err := r.fleet(ctx, instances); err != nil {
		return nil, err
	}
	sec.Text("%d callers of one process ask one call after the other; %s, on a unix socket, without persistence, on the same processors: "+
		"no network, which would add its round trip to every call. The limit is never reached. Latency includes reading the time "+
		"once. Then the server (Redis, etcd) is killed, and they go on for %v. Quotient's row is a fleet of %d instances, on which the callers are spread.",
		callers, version(ctx), r.each, instances)
	sec.Table([]string{"counter", "permits a second", "p50 us", "p99 us", "CPU us a permit, callers", "CPU us a permit, server", "permits a second after", "errors after"}, r.rows)
	sec.Draw(report.Chart{File: "central", Title: "16 callers: processor time for a permit", Unit: "us, callers and server", Bars: r.bars})
	return sec, nil
}

// counter measures one way to use Redis.
func (r *run) counter(ctx context.Context, c counter) error {
	r.o.Log("redis: %s", c.name)
	srv, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer srv.stop()
	client := srv.client(callers)
	defer func() { _ = client.Close() }()
	var all []take
	for range callers {
		all = append(all, c.open(client))
	}
	served := srv.cpu(ctx, client)
	before := drive(ctx, all, r.each)
	served = srv.cpu(ctx, client) - served
	if before.errors > 0 {
		return fmt.Errorf("%d errors and %d permits in %v", before.errors, before.permits, r.each)
	}
	srv.kill()
	r.note(c.name, false, before, drive(ctx, all, r.each), float64(served)/float64(max(1, before.permits)))
	return nil
}

// fleet measures the same on Quotient.
func (r *run) fleet(ctx context.Context, instances int) (err error) {
	r.o.Log("quotient: a fleet of %d", instances)
	f, err := fleet.Start(ctx, instances, quota.MaxPermits)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	var all []take
	for i := range callers {
		l := f.Instances[i%instances]
		all = append(all, func(ctx context.Context) (bool, error) {
			err := l.Acquire(ctx, consumer.Forever)
			return err == nil, err
		})
	}
	before := drive(ctx, all, r.each)
	if err := f.KillEtcd(); err != nil {
		return err
	}
	r.note("Quotient", true, before, drive(ctx, all, r.each), 0)
	return nil
}

// note adds a row: the figures measured before and after the server's death, and the
// processor time of the server for a permit.
func (r *run) note(name string, ours bool, before, after driven, server float64) {
	us := func(ns float64) string { return fmt.Sprintf("%.2f", ns/1000) }
	quantile := func(q float64) string { return us(float64(before.latency.ValueAtQuantile(q))) }
	r.rows = append(r.rows, []string{
		name, fmt.Sprintf("%.0f", before.perSecond), quantile(50), quantile(99), us(float64(before.cpu)), us(server),
		fmt.Sprintf("%.0f", after.perSecond), fmt.Sprint(after.errors),
	})
	r.bars = append(r.bars, report.Bar{Label: name, Value: (float64(before.cpu) + server) / 1000, Ours: ours})
}
