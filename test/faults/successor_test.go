//go:build e2e && linux

package faults

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/child"
)

// successorConfig is one more instance of a lane, in a process of its own.
type successorConfig struct {
	Endpoints []string
	Provider  string
	StateDir  string
}

// beSuccessor takes permits in every window, and tells of the first.
func beSuccessor(c successorConfig, gone over, tell func(told)) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-gone
		cancel()
	}()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := join(ctx, client, coordinator.Options{StateDir: c.StateDir, Logger: quiet})
	if err != nil {
		return err
	}
	defer session.Close()
	limiter, err := consumer.Open(ctx, session, c.Provider, consumer.Options{Logger: quiet})
	if err != nil {
		return err
	}
	for first := true; ctx.Err() == nil; wait(sweepEvery) {
		if limiter.TryAcquire() && first {
			tell(told{Ready: true})
			first = false
		}
	}
	return nil
}

// restart kills an instance and starts it again in its place.
func (l *lane) restart(part time.Duration) error {
	dir, err := os.MkdirTemp("", "successor")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ready, lost := make(chan struct{}, 2), make(chan error, 2)
	start := func() (*child.Process, error) {
		return child.Start("successor", successorConfig{Endpoints: l.endpoints, Provider: l.provider, StateDir: dir},
			func(told) { ready <- struct{}{} }, func(err error) { lost <- err })
	}
	permit := func() error {
		select {
		case <-ready:
			return nil
		case err := <-lost:
			return err
		case <-time.After(impatience):
			return fmt.Errorf("no permit %v after a process was started", impatience)
		}
	}
	before, err := start()
	if err != nil {
		return err
	}
	defer before.Kill()
	if err := permit(); err != nil {
		return err
	}
	if err := l.settle(total, l.size+1); err != nil {
		return err
	}
	began := at(part)
	before.Kill()
	after, err := start()
	if err != nil {
		return err
	}
	defer after.Kill()
	if err := permit(); err != nil {
		return err
	}
	l.took.add(toResume, time.Since(began))
	if err := after.Close(impatience); err != nil {
		return err
	}
	return l.settle(total, l.size)
}
