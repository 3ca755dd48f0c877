package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/child"
	"github.com/quotient-limiter/quotient/internal/load"
)

// endPatience is how long a child may take to end in good order.
const endPatience = 30 * time.Second

// crew is all that carries the fleet: workers, each with some of its instances,
// the victims, which are workers of one instance that will be killed, and the
// provider, if permits make requests.
type crew struct {
	c             *config.Config
	etcd          *etcd
	dir           string       // for the files of counts; empty if there are none
	setup         worker.Setup // of every worker
	fail          func(error)
	files         atomic.Int64
	busy          sync.WaitGroup  // victims that are being replaced
	provider      *worker.Process // nil if there is none
	arrivals      string          // the provider's file of counts
	providerEnded chan struct{}

	mu       sync.Mutex
	workers  []*link
	victims  []*link   // of one instance each; oldest first
	closing  bool      // who was killed is replaced no more
	start    int64     // when delays begin to count; load.Never until that is known
	stop     int64     // when calls end; the same
	past     load.Sums // counts of workers that are gone
	pastCPU  time.Duration
	issued   int64 // by workers that are gone, as last told
	maxRSS   int64 // the most that all processes had at a time
	departed load.Departures
	took     *hdrhistogram.Histogram
	delay    *hdrhistogram.Histogram
	sent     int64
	lost     int64
	beyond   time.Duration // see status
	worst    time.Duration // the same
	problem  string        // of a request that was lost
}

// newCrew starts nobody yet. fail is told what must end the run.
func newCrew(c *config.Config, e *etcd, provider string, own *ownClock, fail func(error)) *crew {
	w := &crew{
		c: c, etcd: e, fail: fail, start: load.Never, stop: load.Never, past: load.Sums{},
		took: hdrhistogram.New(1, int64(worker.Slowest), 3), delay: hdrhistogram.New(1, int64(worker.Slowest), 3),
		setup: worker.Setup{
			Args: c.Args, Provider: provider, Limits: c.Limit, Tolerance: own.allowed, Secret: rand.Text(),
			Generators: min(runtime.GOMAXPROCS(0), c.Instances),
		},
	}
	if e.embedded != nil {
		w.setup.Endpoints = e.embedded.Endpoints()
	} else {
		w.setup.Password = e.client.Password
	}
	return w
}

// join starts the provider and the workers, and lets the fleet join.
func (c *crew) join(ctx context.Context) error {
	if c.c.Children() {
		var err error
		if c.dir, err = os.MkdirTemp("", "quotient-loadgen-"); err != nil {
			return err
		}
	}
	if c.c.Http {
		if err := c.startProvider(ctx); err != nil {
			return err
		}
	}
	regular := c.c.Instances - c.c.Victims()
	if err := c.startWorkers(regular); err != nil {
		return err
	}
	for slot := regular; slot < c.c.Instances && ctx.Err() == nil; slot++ {
		if err := c.addVictim([]int{slot}, false); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// startWorkers spreads the slots below n over the workers.
func (c *crew) startWorkers(n int) error {
	count := c.c.Processes
	for i := range count {
		var slots []int
		for slot := i; slot < n; slot += count {
			slots = append(slots, slot)
		}
		var l *link
		var err error
		if count == 1 {
			l, err = c.openLocal(slots)
		} else {
			l, err = c.openRemote(slots, c.generators())
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.workers = append(c.workers, l)
		c.mu.Unlock()
		if err := l.send(worker.Order{Join: &worker.Joining{Slots: slots}}); err != nil {
			return err
		}
	}
	return nil
}

// generators is how many goroutines make calls in each of several processes.
func (c *crew) generators() int {
	return (runtime.GOMAXPROCS(0) + c.c.Processes - 1) / c.c.Processes
}

// startProvider starts the provider and waits until it serves.
func (c *crew) startProvider(ctx context.Context) (err error) {
	c.arrivals = filepath.Join(c.dir, "arrivals")
	listening := make(chan string, 1)
	hear := func(r worker.Report) {
		switch {
		case r.Listening != "":
			listening <- r.Listening
		case r.Failed != "":
			c.fail(errors.New(r.Failed))
		}
	}
	ended := make(chan struct{})
	c.providerEnded = ended
	s := c.setup
	s.Counts = c.arrivals
	if c.provider, err = child.Start[worker.Order](worker.RoleVariable, worker.RoleProvider, func(r worker.Report) {
		if r.Ended != nil {
			close(ended)
		}
		hear(r)
	}, c.fail); err != nil {
		return err
	}
	if err := c.provider.Send(worker.Order{Setup: &s}); err != nil {
		return err
	}
	select {
	case c.setup.Target = <-listening:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// all returns every worker there is.
func (c *crew) all() []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Concat(c.workers, c.victims)
}

// tell gives an order to all workers. One that takes none is as good as dead,
// which ends the run by itself.
func (c *crew) tell(o worker.Order) {
	for _, l := range c.all() {
		_ = l.send(o)
	}
}

// between lets delays count from an instant and ends the calls at another, also
// those of workers to come.
func (c *crew) between(start, stop int64) {
	c.mu.Lock()
	c.start, c.stop = start, stop
	c.mu.Unlock()
	c.tell(worker.Order{Start: start})
	c.tell(worker.Order{Stop: stop})
}

// demand lets everybody ask for as much as these limits make them, also victims
// to come.
func (c *crew) demand(limits string) {
	c.mu.Lock()
	c.setup.Limits = limits
	c.mu.Unlock()
	c.tell(worker.Order{Limits: limits})
}

// status sums up what the workers told last.
func (c *crew) status() worker.Status {
	all := c.all()
	var s worker.Status
	for _, l := range all {
		one := l.status()
		s.Active += one.Active
		s.Ready += one.Ready
		s.Issued += one.Issued
		s.Shares = append(s.Shares, one.Shares...)
		if one.Problem != "" {
			s.Problem = one.Problem
		}
		if l.remote != nil {
			s.CPU += one.CPU
			s.MaxRSS += one.MaxRSS
		}
	}
	cpu, rss := child.Used()
	c.mu.Lock()
	defer c.mu.Unlock()
	s.CPU += cpu + c.pastCPU
	s.Issued += c.issued
	c.maxRSS = max(c.maxRSS, s.MaxRSS+rss)
	return s
}

// end stops the load and ends everybody. When it returns, no process is left and
// all counts are in.
func (c *crew) end() error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.busy.Wait()
	var group errgroup.Group
	for _, l := range c.all() {
		group.Go(func() error { return c.retire(l) })
	}
	err := group.Wait()
	if c.provider != nil {
		err = errors.Join(err, c.provider.End(worker.Order{End: true}, c.providerEnded, endPatience))
	}
	if c.lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d requests to the provider got no answer: %s", c.lost, c.lost+c.sent, c.problem))
	}
	return err
}

// retire ends a worker and takes its counts over.
func (c *crew) retire(l *link) error {
	err := l.end()
	last := l.last
	counts, failed := l.counts()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.past.Add(counts)
	err = errors.Join(err, failed)
	if last == nil {
		return err
	}
	c.sent, c.lost = c.sent+last.Sent, c.lost+last.Lost
	if last.Problem != "" {
		c.problem = last.Problem
	}
	for _, h := range []struct {
		into *hdrhistogram.Histogram
		from []byte
	}{{c.took, last.Took}, {c.delay, last.Delay}} {
		more, failed := hdrhistogram.Decode(h.from)
		if failed != nil {
			return errors.Join(err, failed)
		}
		h.into.Merge(more)
	}
	return err
}

// arrived returns the requests by the provider's clock, nil without a provider.
func (c *crew) arrived() (*load.Arrivals, error) {
	if c.provider == nil {
		return nil, nil
	}
	counts, err := worker.CountsIn(c.arrivals)
	c.mu.Lock()
	defer c.mu.Unlock()
	return &load.Arrivals{Counts: counts, Promised: !c.c.Shaped() && c.c.Guarded().Covers(), Unjudged: c.c.Unjudged(c.beyond)}, err
}

// cleanUp removes the files.
func (c *crew) cleanUp() error {
	if c.dir == "" {
		return nil
	}
	return os.RemoveAll(c.dir)
}
