package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// together is how many instances join or leave at a time.
const together = 16

// fleet is the instances of one process, with the generators that make their
// calls. Each instance has a session and a limiter of its own, as if it were a
// process.
type fleet struct {
	c          *config
	etcd       *etcd
	provider   string
	shared     *shared
	generators []*generator
	making     sync.WaitGroup // the generators' goroutines
	waitReady  sync.WaitGroup

	active atomic.Int64 // instances that were ready once

	mu        sync.Mutex
	instances []*instance
}

// instance is one member of the fleet.
type instance struct {
	session *coordinator.Session
	limiter *consumer.Limiter
}

func newFleet(c *config, e *etcd, provider string) *fleet {
	f := &fleet{c: c, etcd: e, provider: provider, shared: &shared{
		window:  int64(c.window()),
		maxWait: c.maxWait,
		demand:  load.Demand{Ratio: c.demand, Skew: c.skew, Instances: c.instances},
	}}
	f.shared.limits.Store(&c.limits)
	f.shared.stop.Store(load.Never)
	for range min(runtime.GOMAXPROCS(0), c.instances) {
		f.generators = append(f.generators, newGenerator(f.shared))
	}
	return f
}

// start lets the generators make calls for the instances that there are, and
// for those that join later.
func (f *fleet) start() {
	for _, g := range f.generators {
		f.making.Go(g.run)
	}
}

// join opens all instances. When it returns they are members, but may issue
// nothing yet.
func (f *fleet) join(ctx context.Context) error {
	parts := f.c.skew.Parts(f.c.instances)
	group, joining := errgroup.WithContext(ctx)
	group.SetLimit(together)
	for i := range f.c.instances {
		group.Go(func() error {
			in, err := f.open(joining, i)
			if err != nil {
				return fmt.Errorf("instance %d did not join: %w", i, err)
			}
			calls := load.NewProcess(f.c.arrival, f.c.seed, i, f.c.instances)
			f.generators[i%len(f.generators)].add(in.limiter, calls, parts[i])
			f.waitReady.Go(func() {
				if in.limiter.Ready(ctx) == nil {
					f.active.Add(1)
				}
			})
			return nil
		})
	}
	return group.Wait()
}

func (f *fleet) open(ctx context.Context, i int) (*instance, error) {
	// Changes of state show in the table; their log would tear it apart.
	log := slog.New(slog.DiscardHandler)
	session, err := coordinator.Join(ctx, f.etcd.client, coordinator.Options{
		Name: fmt.Sprintf("loadgen-%d", i), Prefix: f.etcd.prefix, Probe: f.c.probe(), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	limiter, err := consumer.Open(ctx, session, f.provider, consumer.Options{Logger: log})
	if err != nil {
		_ = session.Close() // err tells more
		return nil, err
	}
	in := &instance{session, limiter}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances = append(f.instances, in)
	return in, nil
}

// activeNow counts the instances that are active at the moment, and returns
// what keeps one of the others from it.
func (f *fleet) activeNow() (active int, problem string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.instances {
		st := in.limiter.Status()
		if st.State == quota.StateActive {
			active++
			continue
		}
		problem = st.Problem
	}
	return active, problem
}

// issued returns the permits that were counted so far.
func (f *fleet) issued() int64 {
	var n int64
	for _, g := range f.generators {
		n += g.issued.Load()
	}
	return n
}

// waiting returns the calls that wait in limiters' queues.
func (f *fleet) waiting() int64 {
	var n int64
	for _, g := range f.generators {
		n += g.waiting.Load()
	}
	return n
}

// end stops the load and closes the fleet. When it returns, no permit can come
// that is not counted; an error says that calls in a queue got no answer.
func (f *fleet) end() error {
	if now := time.Now().UnixNano(); now < f.shared.stop.Load() {
		f.shared.stop.Store(now)
	}
	f.making.Wait()
	f.settleWaiters(f.c.maxWait + time.Second)
	var group errgroup.Group
	group.SetLimit(together)
	for _, in := range f.instances {
		group.Go(func() error {
			// What does not close in good order ends with its lease.
			_ = in.limiter.Close()
			return in.session.Close()
		})
	}
	err := group.Wait()
	f.waitReady.Wait()
	f.settleWaiters(time.Second)
	if n := f.waiting(); n > 0 {
		return fmt.Errorf("%d calls that waited never got an answer: the counts may lack their permits", n)
	}
	if err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	return nil
}

// settleWaiters waits until no call waits, but not for long.
func (f *fleet) settleWaiters(atMost time.Duration) {
	for end := time.Now().Add(atMost); f.waiting() > 0 && time.Now().Before(end); {
		time.Sleep(tick)
	}
}
