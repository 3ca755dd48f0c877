package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/trace"
)

// endPatience is how long a child may take to end in good order.
const endPatience = 30 * time.Second

// link is the parent's end of a worker, which is a process of its own.
type link struct {
	*child.Process
	slots  []int         // of the fleet
	file   string        // of its counts
	latest worker.Report // guarded by the crew's mutex
}

// crew is all that carries the fleet: workers, each with some of its instances;
// victims, which are workers of one instance that will be killed; and the provider, if
// permits make requests.
type crew struct {
	c        *config.Config
	dir      string // for the files of counts
	fail     func(error)
	event    func(string)
	busy     sync.WaitGroup   // killed workers that are being replaced
	provider *worker.Provider // nil if there is none

	mu      sync.Mutex
	setup   worker.Setup // of workers to come
	files   int
	workers []*link
	victims []*link // of one instance each; oldest first
	closing bool    // killed workers are replaced no more
	sheet   load.Sheet
	counts  [][]load.Count // of workers that are gone, by the sheet's tallies
	past    worker.Report  // of those that were killed
	killed  int            // instances
	maxRSS  int64          // the most that all processes had at a time
	took    *hdrhistogram.Histogram
	delay   *hdrhistogram.Histogram
	first   *hdrhistogram.Histogram // loans
}

// newCrew starts nobody yet. fail is told what must end the run.
func newCrew(c *config.Config, e *etcd, provider string, own *ownClock, fail func(error)) *crew {
	since := c.Now()
	sheet := c.Sheet(since)
	w := &crew{
		c: c, fail: fail, sheet: sheet, counts: make([][]load.Count, len(sheet.Lengths)),
		took: hdrhistogram.New(1, int64(worker.Slowest), 3), delay: hdrhistogram.New(1, int64(worker.Slowest), 3),
		first: hdrhistogram.New(1, int64(worker.Slowest), 3),
		setup: worker.Setup{
			Args: c.Args, Ahead: c.Ahead, Provider: provider, Since: since, Tolerance: own.allowed, Secret: rand.Text(),
			State: worker.State{Limits: c.Limit, Start: load.Never, Stop: load.Never},
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
func (c *crew) join(ctx context.Context) (err error) {
	if c.dir, err = os.MkdirTemp("", "quotient-loadgen-"); err != nil {
		return err
	}
	if c.c.Http {
		if c.provider, err = worker.StartProvider(load.Sheet{Since: c.sheet.Since, Until: c.sheet.Until, Lengths: c.c.Lengths()}, c.setup.Secret, c.fail); err != nil {
			return err
		}
		c.setup.Target = c.provider.Address
	}
	regular := c.c.Instances - c.c.Victims()
	for i := range c.c.Processes {
		var slots []int
		for slot := i; slot < regular; slot += c.c.Processes {
			slots = append(slots, slot)
		}
		if err := c.add(&c.workers, slots, false); err != nil {
			return err
		}
	}
	for slot := regular; slot < c.c.Instances && ctx.Err() == nil; slot++ {
		if err := c.add(&c.victims, []int{slot}, false); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// add starts a worker, in one of the two lists.
func (c *crew) add(list *[]*link, slots []int, retry bool) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files++
	l := &link{slots: slots, file: filepath.Join(c.dir, fmt.Sprintf("counts-%d", c.files))}
	s := c.setup
	s.Slots, s.Retry, s.Counts = slots, retry, l.file
	if l.Process, err = child.Start(worker.Role, s, func(r worker.Report) { c.hear(l, r) }, c.fail); err != nil {
		return err
	}
	*list = append(*list, l)
	return nil
}

func (c *crew) hear(l *link, r worker.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Failed != "" {
		c.fail(fmt.Errorf("%s: %s", l.Name, r.Failed))
		return
	}
	l.latest = r
}

// tell changes the state of all workers, also of those to come. A worker that takes no
// orders is as good as dead, which ends the run by itself.
func (c *crew) tell(change func(*worker.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.setup.State)
	for _, l := range slices.Concat(c.workers, c.victims) {
		_ = l.Send(worker.Order{State: &c.setup.State})
	}
}

func (c *crew) status() worker.Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := worker.Report{Shares: make([]int64, len(c.c.Bands()))}
	s.CPU, s.MaxRSS = child.Used()
	s.Add(&c.past)
	for _, l := range slices.Concat(c.workers, c.victims) {
		s.Add(&l.latest)
	}
	c.maxRSS = max(c.maxRSS, s.MaxRSS)
	return s
}

// depart lets instances leave and join as planned, until ctx ends.
func (c *crew) depart(ctx context.Context, start int64) error {
	next := 0 // the announced ones in turn, over all workers
	for _, d := range c.c.Plan() {
		if !pause(ctx, c.c.Until(start+int64(d.At))) {
			return nil
		}
		if d.Crash {
			c.kill(&c.workers)
			continue
		}
		if d.Kill {
			c.kill(&c.victims)
			continue
		}
		slot := next % (c.c.Instances - c.c.Victims())
		next++
		c.mu.Lock()
		l := c.workers[slot%len(c.workers)]
		c.mu.Unlock()
		if err := l.Send(worker.Order{Replace: &slot}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// kill kills the oldest worker of a list, in the background, takes its counts over,
// and then starts another for its slots.
func (c *crew) kill(list *[]*link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || len(*list) == 0 {
		return
	}
	l := (*list)[0]
	*list = (*list)[1:]
	if list == &c.workers {
		c.event(fmt.Sprintf("%d instances crash", len(l.slots)))
	}
	c.killed += len(l.slots)
	gone := l.latest
	gone.Joined, gone.Active, gone.Ready, gone.Serving, gone.Problem, gone.MaxRSS, gone.Shares = 0, 0, 0, 0, "", 0, nil
	c.past.Add(&gone)
	c.busy.Go(func() {
		l.Kill()
		var named error
		if c.c.Trace != "" {
			named = trace.Killed(c.c.Trace, l.PID)
		}
		c.mu.Lock()
		err := errors.Join(named, worker.CountsIn(l.file, &c.sheet, c.counts))
		c.past.CPU += l.Used() - gone.CPU
		c.mu.Unlock()
		if err == nil {
			err = c.add(list, l.slots, true)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// pause waits, or returns false because ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// end stops the load and ends everybody. When it returns, no process and no file is
// left, and all counts are in. It returns the requests by the provider's clock, nil
// without a provider.
func (c *crew) end() (arrived *load.Arrivals, err error) {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.busy.Wait()
	var group errgroup.Group
	for _, l := range slices.Concat(c.workers, c.victims) {
		group.Go(func() error { return c.retire(l) })
	}
	err = group.Wait()
	if c.provider != nil {
		arrived = &load.Arrivals{Counts: c.provider.Close(), Promised: c.c.Unjudged(0) == "", Unjudged: c.c.Unjudged(c.status().Beyond)}
	}
	return arrived, errors.Join(err, os.RemoveAll(c.dir))
}

func (c *crew) retire(l *link) error {
	err := l.Close(endPatience)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = errors.Join(err, worker.CountsIn(l.file, &c.sheet, c.counts)); l.latest.Ended == nil {
		return errors.Join(err, fmt.Errorf("%s ended before it was done", l.Name))
	}
	e := l.latest.Ended
	if n := e.Lost; n > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d requests of %s got no answer: %s", n, n+e.Sent, l.Name, e.Problem))
	}
	c.took.Merge(hdrhistogram.Import(e.Took))
	c.delay.Merge(hdrhistogram.Import(e.Delay))
	c.first.Merge(hdrhistogram.Import(e.FirstLoan))
	return err
}
