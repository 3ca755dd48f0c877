package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/child"
)

const (
	workerRole    = "worker"
	scaleProvider = "scale"
	processes     = 4 // that the instances are spread over
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

// order has a worker wait until all apply the policy of a revision. It answers each
// order, and the setup when all instances are active.
type order struct{ Applied int64 }

type answer struct {
	Err    string `json:",omitempty"`
	At     int64  // Unix nanoseconds, when the order was done
	CPU    time.Duration
	Memory int64 // bytes, at most so far
}

// runIfWorker makes this process a worker, if it was started as one, and does not
// return then.
func runIfWorker() {
	child.Be(workerRole, func(s setup, orders <-chan order, tell func(answer)) error {
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, workerNice) // it may be lower already
		say := func(err error) {
			a := answer{At: time.Now().UnixNano()}
			if err != nil {
				a.Err = err.Error()
			}
			a.CPU, a.Memory = child.Used()
			tell(a)
		}
		limiters, err := s.join()
		say(err)
		for o := range orders {
			say(applied(limiters, o.Applied))
		}
		return nil
	})
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
		letPass(500 * time.Millisecond)
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
			letPass(time.Millisecond)
		}
	}
	return nil
}

// fleet is the workers, as their parent sees them.
type fleet struct {
	workers []*child.Process
	answers chan answer
}

// startWorkers starts the workers of a fleet of n, whose instances join. They end
// without notice: leases clean up.
func startWorkers(b *testing.B, n int, endpoints []string) *fleet {
	b.Helper()
	f := &fleet{answers: make(chan answer, 2*processes)}
	for i := range min(n, processes) {
		first, end := n*i/min(n, processes), n*(i+1)/min(n, processes)
		p, err := child.Start(workerRole, setup{
			Endpoints: endpoints, First: first, Size: end - first, PerClient: *perClient, Limiters: *limiters, TTL: *ttl,
		}, func(a answer) { f.answers <- a }, func(err error) { f.answers <- answer{Err: err.Error()} })
		must(b, err)
		b.Cleanup(p.Kill)
		f.workers = append(f.workers, p)
	}
	return f
}

// applied returns what the workers used when all of them apply a policy.
func (f *fleet) applied(revision int64) (answer, error) {
	for _, w := range f.workers {
		if err := w.Send(order{Applied: revision}); err != nil {
			return answer{}, err
		}
	}
	return f.await()
}

// await sums up an answer of each worker: the last instant, and what they used
// together.
func (f *fleet) await() (sum answer, err error) {
	for range f.workers {
		a := <-f.answers
		if a.Err != "" {
			err = errors.Join(err, errors.New(a.Err))
		}
		sum.At = max(sum.At, a.At)
		sum.CPU += a.CPU
		sum.Memory += a.Memory
	}
	return sum, err
}
