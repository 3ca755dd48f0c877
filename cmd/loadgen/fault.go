package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// fault is something that befalls the embedded etcd on the way.
type fault struct {
	at   time.Duration // after the measured time began
	name string
	do   func(context.Context, *etcdtest.Cluster) error
}

// faults are what can befall it, by name.
var faults = map[string]func(context.Context, *etcdtest.Cluster) error{
	"kill-leader":  onLeader((*etcdtest.Cluster).Kill),
	"pause-leader": onLeader((*etcdtest.Cluster).Pause),
	"pause-all":    onAll((*etcdtest.Cluster).Pause),
	"resume-all":   onAll((*etcdtest.Cluster).Resume),
	"kill-all":     onAll((*etcdtest.Cluster).Kill),
	"restart-all":  restartKilled,
}

func faultNames() string {
	var names []string
	for name := range faults {
		names = append(names, name)
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

// parseFaults reads AT=WHAT, each within the run, in order of time.
func parseFaults(texts []string, duration time.Duration) ([]fault, error) {
	var list []fault
	for _, text := range texts {
		at, name, err := parseAt("--fault", "AT=WHAT, such as 5s=kill-leader", text, duration)
		if err != nil {
			return nil, err
		}
		do, ok := faults[name]
		if !ok {
			return nil, usagef("--fault: %q in %q is unknown: use one of %s", name, text, faultNames())
		}
		list = append(list, fault{at, name, do})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].at < list[j].at })
	return list, nil
}

// onLeader does something to the member that leads. While there is none, it
// waits for one.
func onLeader(f func(*etcdtest.Cluster, int) error) func(context.Context, *etcdtest.Cluster) error {
	return func(ctx context.Context, c *etcdtest.Cluster) error {
		for ctx.Err() == nil {
			if leader := c.Leader(ctx); leader >= 0 {
				return f(c, leader)
			}
			pause(ctx, time.Now().Add(look).UnixNano())
		}
		return nil
	}
}

// onAll does something to every member that runs.
func onAll(f func(*etcdtest.Cluster, int) error) func(context.Context, *etcdtest.Cluster) error {
	return func(_ context.Context, c *etcdtest.Cluster) error {
		var errs []error
		for i := range c.Endpoints() {
			if c.Running(i) {
				errs = append(errs, f(c, i))
			}
		}
		return errors.Join(errs...)
	}
}

// restartKilled starts every member that does not run on its old data.
func restartKilled(_ context.Context, c *etcdtest.Cluster) error {
	return c.RestartStopped()
}

// fault lets happen what is to happen to etcd, in turn.
func (r *run) fault(ctx context.Context, start int64) error {
	for _, f := range r.c.faults {
		if !pause(ctx, start+int64(f.at)) {
			return nil
		}
		r.event(f.name)
		if err := f.do(ctx, r.etcd.embedded); err != nil {
			err = fmt.Errorf("--fault %v=%s: %w", f.at, f.name, err)
			r.crew.fail(err)
			return err
		}
	}
	return nil
}
