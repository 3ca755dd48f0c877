package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/child"
)

// RoleVariable says, in the environment, that this process is a child and which:
// RoleWorker is the only one.
const (
	RoleVariable = "QUOTIENT_LOADGEN_CHILD"
	RoleWorker   = "worker"
)

// Process is a worker as its parent sees it.
type Process = child.Process[Order, Report]

// RunIfChild turns this process into a worker, and does not return, if it was
// started as one. It comes first of all.
func RunIfChild() {
	role, ok := os.LookupEnv(RoleVariable)
	if !ok {
		return
	}
	var me *Worker // nil until it is set up
	err := child.Serve(func(o Order, answer func(Report)) (err error) {
		tell := func(r Report) {
			if r.Failed != "" {
				r.Failed = fmt.Sprintf("%s process %d: %s", role, os.Getpid(), r.Failed)
			}
			answer(r)
		}
		switch {
		case me != nil:
			err = me.obey(o)
		case o.Setup == nil:
			err = errors.New("an order before the setup")
		case role != RoleWorker:
			err = fmt.Errorf("no child is a %q", role)
		default:
			me, err = start(o.Setup, tell)
		}
		if err != nil {
			tell(Report{Failed: err.Error()})
		}
		return err
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "loadgen: %s %d: %v\n", role, os.Getpid(), err)
		os.Exit(3)
	}
	os.Exit(0)
}

// start starts the worker of a setup.
func start(s *Setup, tell func(Report)) (*Worker, error) {
	c, err := config.ParseFlags(s.Args, func(name string) string {
		if name == "QUOTIENT_PASSWORD" && s.Password != "" {
			return s.Password
		}
		return os.Getenv(name)
	}, io.Discard)
	if err != nil {
		return nil, err
	}
	file, err := newCountFile(s.Counts, func(err error) { tell(Report{Failed: err.Error()}) })
	if err != nil {
		return nil, err
	}
	client, err := c.Client(context.Background(), s.Endpoints)
	if err != nil {
		return nil, err
	}
	return newWorker(c, s, client, file.room, tell)
}
