package worker

import (
	"context"
	"io"
	"os"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/internal/child"
)

// Role is that of a process that is a worker.
const Role = "worker"

// RunIfChild turns this process into a worker, and does not return, if it was
// started as one. It comes first of all.
func RunIfChild() {
	child.Be(Role, func(s Setup, orders <-chan Order, tell func(Report)) error {
		w, err := start(s, tell)
		if err != nil {
			return err
		}
		for o := range orders {
			if err := w.obey(o); err != nil {
				return err
			}
		}
		w.end()
		return nil
	})
}

// start starts the worker of a setup.
func start(s Setup, tell func(Report)) (*Worker, error) {
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
	return newWorker(c, &s, client, file.room, tell)
}
