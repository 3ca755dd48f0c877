// Package central measures what is usually done instead of Quotient: a counter in
// Redis that every instance asks. It starts a redis-server of its own.
package central

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotient-limiter/quotient/bench/internal/fleet"
	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// ours is the name of Quotient's rows.
const ours = "Quotient"

// run is one run of this part.
type run struct {
	o       measure.Options
	each    time.Duration // for one measurement
	rows    [][]string
	outages [][]string
	bars    []report.Bar
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
	sec.Text("Callers of one process ask one call after the other; %s, on a unix socket, without persistence, on the same processors: "+
		"no network, which would add its round trip to every call. The limit is never reached. Latency includes reading the time "+
		"once. Quotient's row is a fleet of %d instances, on which the callers are spread.", version(ctx), instances)
	sec.Table([]string{"counter, callers", "permits a second", "p50 us", "p99 us", "CPU us a permit, callers", "CPU us a permit, server"}, r.rows)
	sec.Draw(report.Chart{File: "central", Title: "16 callers: processor time for a permit", Unit: "us, callers and server", Bars: r.bars})
	sec.Text("16 callers; the server (Redis, etcd) is killed, and then they go on for %v:", r.each)
	sec.Table([]string{"", "permits a second before", "after", "errors after"}, r.outages)
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
	client := srv.client(128)
	defer func() { _ = client.Close() }()
	var before driven
	for _, n := range []int{1, 16, 128} {
		served := srv.cpu(ctx, client)
		d := drive(ctx, openAll(c, client, n), r.each)
		served = srv.cpu(ctx, client) - served
		if d.errors > 0 {
			return fmt.Errorf("%d errors and %d permits in %v", d.errors, d.permits, r.each)
		}
		r.note(c.name, n, d, float64(served)/float64(max(1, d.permits)))
		if n == 16 {
			before = d
		}
	}
	callers := openAll(c, client, 16)
	srv.kill()
	r.outage(c.name, before, drive(ctx, callers, r.each))
	return nil
}

func openAll(c counter, client *redis.Client, n int) (all []take) {
	for range n {
		all = append(all, c.open(client))
	}
	return all
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
	callers := func(n int) (all []take) {
		for i := range n {
			l := f.Instances[i%instances]
			all = append(all, func(ctx context.Context) (bool, error) {
				err := l.Acquire(ctx, consumer.Forever)
				return err == nil, err
			})
		}
		return all
	}
	var before driven
	for _, n := range []int{1, 16, 128} {
		d := drive(ctx, callers(n), r.each)
		r.note(ours, n, d, 0)
		if n == 16 {
			before = d
		}
	}
	if err := f.KillEtcd(); err != nil {
		return err
	}
	r.outage(ours, before, drive(ctx, callers(16), r.each))
	return nil
}

func (r *run) note(name string, callers int, d driven, server float64) {
	us := func(q float64) float64 { return float64(d.latency.ValueAtQuantile(q)) / 1000 }
	r.rows = append(r.rows, []string{
		fmt.Sprintf("%s, %d", name, callers), fmt.Sprintf("%.0f", d.perSecond), fmt.Sprintf("%.2f", us(50)), fmt.Sprintf("%.2f", us(99)),
		fmt.Sprintf("%.2f", float64(d.cpu)/1000), fmt.Sprintf("%.2f", server/1000),
	})
	if callers == 16 {
		r.bars = append(r.bars, report.Bar{Label: name, Value: (float64(d.cpu) + server) / 1000, Ours: name == ours})
	}
}

func (r *run) outage(name string, before, after driven) {
	r.outages = append(r.outages, []string{
		name, fmt.Sprintf("%.0f", before.perSecond), fmt.Sprintf("%.0f", after.perSecond), fmt.Sprint(after.errors),
	})
}
