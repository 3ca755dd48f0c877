package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/embedded"
)

// etcd is the configuration server of a run: one that ran already, or an
// embedded one.
type etcd struct {
	client   *clientv3.Client
	admin    *admin.Client
	embedded *embedded.Cluster // nil if it ran already
}

// openEtcd connects to the etcd of the flags, or starts one. lost is told if a
// member that runs as a process ends by itself.
func openEtcd(ctx context.Context, c *config.Config, lost func(error)) (_ *etcd, err error) {
	e := &etcd{}
	defer func() {
		if err != nil {
			_ = e.close() // what was opened so far; err tells more
		}
	}()
	var endpoints []string // of the embedded one
	if c.Embedded {
		// etcd's own timers: on a machine under full load a faster clock would take
		// every hiccup for a dead leader. Members that may be killed are processes.
		if e.embedded, err = embedded.Start(embedded.Options{
			Slow: true, Members: c.Members, Processes: c.Members > 1 || len(c.Faults) > 0,
			OnExit: func(member int, err error) {
				lost(fmt.Errorf("etcd member %d ended though nobody had asked it to: %w", member, err))
			},
		}); err != nil {
			return nil, fmt.Errorf("the embedded etcd did not start: %w; with --endpoints loadgen uses one that runs already", err)
		}
		endpoints = e.embedded.Endpoints()
	}
	if e.client, err = c.Client(ctx, endpoints); err != nil {
		return nil, fmt.Errorf("%s: %w", e.where(c), err)
	}
	e.admin, err = admin.New(e.client, admin.Options{Author: "loadgen", Prefix: c.Etcd.Prefix, Timeout: c.Etcd.CommandTimeout})
	return e, err
}

func (e *etcd) where(c *config.Config) string {
	if e.embedded != nil {
		if n := len(e.embedded.Endpoints()); n > 1 {
			return fmt.Sprintf("embedded etcd of %d members", n)
		}
		return "embedded etcd"
	}
	return "etcd at " + strings.Join(c.Etcd.Endpoints, ",")
}

func (e *etcd) close() error {
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	if e.embedded != nil {
		err = e.embedded.Close()
	}
	return err
}

// befall does to the embedded etcd what a fault's name says, such as kill-leader:
// to the member that leads, or that will, to every one that runs, or to those that
// do not (restart-all).
func (e *etcd) befall(ctx context.Context, fault string) error {
	c := e.embedded
	what, whom, _ := strings.Cut(fault, "-")
	do := map[string]func(int) error{"kill": c.Kill, "pause": c.Pause, "resume": c.Resume}[what]
	if do == nil {
		return c.Restart()
	}
	if whom == "leader" {
		leader := c.Leader(ctx)
		for leader < 0 && pause(ctx, worker.Look) {
			leader = c.Leader(ctx)
		}
		if leader < 0 {
			return nil
		}
		return do(leader)
	}
	var errs []error
	for i := range c.Endpoints() {
		if c.Running(i) {
			errs = append(errs, do(i))
		}
	}
	return errors.Join(errs...)
}

func (r *run) fault(ctx context.Context, start int64) error {
	for _, f := range r.c.Faults {
		if !pause(ctx, r.c.Until(start+int64(f.At))) {
			return nil
		}
		r.event(f.Text)
		if err := r.etcd.befall(ctx, f.Text); err != nil {
			err = fmt.Errorf("--fault %v: %w", f, err)
			r.crew.fail(err)
			return err
		}
	}
	return nil
}
