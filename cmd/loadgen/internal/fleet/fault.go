package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/etcdtest"
)

// faults are what befalls the embedded etcd, by name.
var faults = map[string]func(context.Context, *etcdtest.Cluster) error{
	config.KillLeader:  onLeader((*etcdtest.Cluster).Kill),
	config.PauseLeader: onLeader((*etcdtest.Cluster).Pause),
	config.PauseAll:    onAll((*etcdtest.Cluster).Pause),
	config.ResumeAll:   onAll((*etcdtest.Cluster).Resume),
	config.KillAll:     onAll((*etcdtest.Cluster).Kill),
	config.RestartAll:  restartKilled,
}

// onLeader does something to the member that leads. While there is none, it
// waits for one.
func onLeader(f func(*etcdtest.Cluster, int) error) func(context.Context, *etcdtest.Cluster) error {
	return func(ctx context.Context, c *etcdtest.Cluster) error {
		for ctx.Err() == nil {
			if leader := c.Leader(ctx); leader >= 0 {
				return f(c, leader)
			}
			pause(ctx, time.Now().Add(worker.Look).UnixNano())
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
	for _, f := range r.c.Faults {
		if !pause(ctx, start+int64(f.At)) {
			return nil
		}
		r.event(f.Text)
		if err := faults[f.Text](ctx, r.etcd.embedded); err != nil {
			err = fmt.Errorf("--fault %v: %w", f, err)
			r.crew.fail(err)
			return err
		}
	}
	return nil
}
