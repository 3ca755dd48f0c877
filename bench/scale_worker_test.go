package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/child"
)

const (
	// workerVariable makes this program a worker.
	workerVariable = "QUOTIENT_BENCH_WORKER"
	scaleProvider  = "scale"
	processes      = 4 // that the instances are spread over
	// workerNice puts the fleet's processes behind etcd's: the fleet of a real etcd
	// has machines of its own.
	workerNice = 10
)

// setup is what a worker must know.
type setup struct {
	Endpoints   []string
	First, Size int // the instances' numbers
	// PerClient is how many sessions share a client, Limiters how many share a session.
	PerClient, Limiters int
	TTL                 time.Duration
}

// order is what a worker is told. It answers each.
type order struct {
	Setup   *setup `json:",omitempty"` // join
	Applied int64  `json:",omitempty"` // wait until all apply the policy of this revision
}

type answer struct {
	Err    string `json:",omitempty"`
	At     int64  // Unix nanoseconds, when the order was done
	CPU    time.Duration
	Memory int64 // bytes, at most so far
}

// runIfWorker makes this process a worker, if it was started as one, and does not
// return then.
func runIfWorker() {
	if _, ok := os.LookupEnv(workerVariable); !ok {
		return
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, workerNice) // it may be lower already
	var limiters []*consumer.Limiter
	err := child.Serve(func(o order, tell func(answer)) error {
		var a answer
		var err error
		if o.Setup != nil {
			limiters, err = o.Setup.join()
		} else {
			err = applied(limiters, o.Applied)
		}
		if err != nil {
			a.Err = err.Error()
		}
		a.At = time.Now().UnixNano()
		a.CPU, a.Memory = child.Used()
		tell(a)
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// join opens all instances at once, and returns when all may issue permits.
func (s *setup) join() ([]*consumer.Limiter, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	clients := make([]*clientv3.Client, (s.Size+s.PerClient-1)/s.PerClient)
	for i := range clients {
		var err error
		if clients[i], err = clientv3.New(clientv3.Config{Endpoints: s.Endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}); err != nil {
			return nil, err
		}
	}
	limiters := make([]*consumer.Limiter, s.Size*s.Limiters)
	errs := make([]error, s.Size)
	var all sync.WaitGroup
	for i := range s.Size {
		all.Go(func() {
			errs[i] = s.open(ctx, clients[i/s.PerClient], s.First+i, limiters[i*s.Limiters:(i+1)*s.Limiters])
		})
	}
	all.Wait()
	return limiters, cmp.Or(errs...)
}

// open makes one instance with its limiters, and returns when it is active. It tries
// again as long as ctx allows.
func (s *setup) open(ctx context.Context, client *clientv3.Client, number int, limiters []*consumer.Limiter) error {
	log := slog.New(slog.DiscardHandler)
	join := func() (*coordinator.Session, error) {
		return coordinator.Join(ctx, client, coordinator.Options{Name: fmt.Sprintf("scale-%d", number), TTL: s.TTL, Logger: log})
	}
	session, err := join()
	for ; err != nil && ctx.Err() == nil; session, err = join() {
		time.Sleep(500 * time.Millisecond)
	}
	for i := range limiters {
		if err == nil {
			limiters[i], err = consumer.Open(ctx, session, scaleProvider, consumer.Options{Logger: log})
		}
	}
	if err == nil {
		err = limiters[0].Ready(ctx)
	}
	if err != nil {
		return fmt.Errorf("instance %d is not active after %v: %w", number, patience, err)
	}
	return nil
}

// applied waits until all limiters have applied the policy of a revision.
func applied(limiters []*consumer.Limiter, revision int64) error {
	end := time.Now().Add(patience)
	for _, l := range limiters {
		for l.Status().PolicyRevision < revision {
			if time.Now().After(end) {
				return fmt.Errorf("an instance has not applied revision %d after %v", revision, patience)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// workerProcess is a worker as its parent sees it.
type workerProcess struct {
	*child.Process[order, answer]
	answers chan answer
	setup   setup
}

// startWorkers starts the workers of a fleet of n. They end without notice: leases
// clean up.
func startWorkers(b *testing.B, n int, endpoints []string) (workers []*workerProcess) {
	b.Helper()
	for i := range min(n, processes) {
		first, end := n*i/min(n, processes), n*(i+1)/min(n, processes)
		w := &workerProcess{answers: make(chan answer, 2), setup: setup{
			Endpoints: endpoints, First: first, Size: end - first, PerClient: *perClient, Limiters: *limiters, TTL: *ttl,
		}}
		var err error
		w.Process, err = child.Start[order](workerVariable, "worker", func(a answer) { w.answers <- a }, func(err error) { w.answers <- answer{Err: err.Error()} })
		must(b, err)
		b.Cleanup(w.Kill)
		workers = append(workers, w)
	}
	return workers
}

// ask gives all workers an order and sums up their answers: the last instant, and what
// they used together.
func ask(workers []*workerProcess, order func(*workerProcess) order) (sum answer, err error) {
	for _, w := range workers {
		err = errors.Join(err, w.Send(order(w)))
	}
	if err != nil {
		return sum, err
	}
	for _, w := range workers {
		a := <-w.answers
		if a.Err != "" {
			err = errors.Join(err, errors.New(a.Err))
		}
		sum.At = max(sum.At, a.At)
		sum.CPU += a.CPU
		sum.Memory += a.Memory
	}
	return sum, err
}
