package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/child"
)

const (
	// workerVariable makes this program a worker.
	workerVariable = "QUOTIENT_SCALE_WORKER"
	provider       = "scale"
	// joinPause is how long an instance waits that could not join.
	joinPause = 500 * time.Millisecond
	// workerNice puts the fleet's processes behind etcd's: the fleet of a real etcd
	// has machines of its own.
	workerNice = 10
)

// setup is what a worker must know.
type setup struct {
	Endpoints   []string
	First, Size int // the instances' numbers
	options
}

// order is what a worker is told, answer its reply.
type order struct {
	Setup   *setup `json:",omitempty"` // join
	Applied int64  `json:",omitempty"` // wait until all apply the policy of this revision
	Use     bool   `json:",omitempty"` // tell what the process used
}

type answer struct {
	Err    string `json:",omitempty"`
	At     int64  // Unix nanoseconds, when the order was done
	CPU    time.Duration
	Memory int64 // bytes, at most so far
}

// worker is the instances of one process.
type worker struct{ limiters []*consumer.Limiter }

// runIfWorker makes this process a worker, if it was started as one, and does
// not return then.
func runIfWorker() {
	if _, ok := os.LookupEnv(workerVariable); !ok {
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, workerNice) // it may be lower already
	var w worker
	err := child.Serve(func(o order, tell func(answer)) error {
		var a answer
		if err := w.obey(o); err != nil {
			a.Err = err.Error()
		}
		a.At = time.Now().UnixNano()
		a.CPU, a.Memory = child.Used()
		tell(a)
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale: worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (w *worker) obey(o order) error {
	switch {
	case o.Setup != nil:
		return w.join(o.Setup)
	case o.Applied != 0:
		return w.applied(o.Applied)
	}
	return nil
}

// join opens all instances at once, and returns when all may issue permits.
func (w *worker) join(s *setup) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	clients := make([]*clientv3.Client, (s.Size+s.PerClient-1)/s.PerClient)
	for i := range clients {
		var err error
		if clients[i], err = clientv3.New(clientv3.Config{Endpoints: s.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}); err != nil {
			return err
		}
	}
	w.limiters = make([]*consumer.Limiter, s.Size*s.Limiters)
	errs := make(chan error, s.Size)
	var all sync.WaitGroup
	for i := range s.Size {
		all.Go(func() {
			own := w.limiters[i*s.Limiters : (i+1)*s.Limiters]
			if err := s.open(ctx, clients[i/s.PerClient], s.First+i, own); err != nil {
				errs <- fmt.Errorf("instance %d: %w", s.First+i, err)
			}
		})
	}
	all.Wait()
	if failed := len(errs); failed > 0 {
		return fmt.Errorf("%d of %d instances are not active after %v, one of them: %w", failed, s.Size, patience, <-errs)
	}
	return nil
}

// open makes one instance with its limiters, and returns when it is active. It
// tries again as long as ctx allows.
func (s *setup) open(ctx context.Context, client *clientv3.Client, number int, limiters []*consumer.Limiter) error {
	log := slog.New(slog.DiscardHandler)
	var session *coordinator.Session
	for session == nil {
		var err error
		if session, err = coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("scale-%d", number), TTL: s.TTL, Logger: log}); err != nil {
			if session = nil; pause(ctx, joinPause) != nil {
				return err
			}
		}
	}
	for i := range limiters {
		var err error
		if limiters[i], err = consumer.Open(ctx, session, provider, consumer.Options{Logger: log}); err != nil {
			return err
		}
	}
	if err := limiters[0].Ready(ctx); err != nil {
		return fmt.Errorf("%w: %s", err, limiters[0].Status().Problem)
	}
	return nil
}

// applied waits until all instances have applied the policy of a revision.
func (w *worker) applied(revision int64) error {
	end := time.Now().Add(patience)
	for _, l := range w.limiters {
		for l.Status().PolicyRevision < revision {
			if time.Now().After(end) {
				return fmt.Errorf("an instance has not applied revision %d after %v", revision, patience)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// crew is a worker as its parent sees it.
type crew struct {
	*child.Process[order, answer]
	answers chan answer
	setup   setup
}

// startCrews starts the workers of a fleet of n.
func startCrews(n int, endpoints []string, o options) (crews []*crew, err error) {
	for i := range processes {
		first := n * i / processes
		c := &crew{answers: make(chan answer, 2), setup: setup{Endpoints: endpoints, First: first, Size: n*(i+1)/processes - first, options: o}}
		if c.setup.Size == 0 {
			continue
		}
		c.Process, err = child.Start[order](workerVariable, "worker", func(a answer) { c.answers <- a }, func(err error) { c.answers <- answer{Err: err.Error()} })
		if err != nil {
			return crews, err
		}
		crews = append(crews, c)
	}
	return crews, nil
}

// ask gives all workers an order and sums up their answers: the last instant, and
// what they used together.
func ask(crews []*crew, order func(*crew) order) (sum answer, err error) {
	var errs []error
	for _, c := range crews {
		errs = append(errs, c.Send(order(c)))
	}
	if err := errors.Join(errs...); err != nil {
		return sum, err
	}
	for _, c := range crews {
		a := <-c.answers
		if a.Err != "" {
			errs = append(errs, errors.New(a.Err))
		}
		sum.At = max(sum.At, a.At)
		sum.CPU += a.CPU
		sum.Memory += a.Memory
	}
	return sum, errors.Join(errs...)
}
