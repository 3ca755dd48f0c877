package fleet

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
	"github.com/quotient-limiter/quotient/internal/child"
	"github.com/quotient-limiter/quotient/internal/load"
)

// link is the parent's end of a worker: one in this very process, or one in a
// process of its own.
type link struct {
	slots  []int           // of the fleet
	remote *worker.Process // nil: the worker is in this process
	local  *worker.Worker
	file   string        // counts of a remote worker
	ended  chan struct{} // closed at the last report
	last   *worker.Ended // set before that

	mu     sync.Mutex
	latest worker.Status
}

// openLocal starts a worker in this process.
func (c *crew) openLocal(slots []int) (*link, error) {
	l := &link{slots: slots, ended: make(chan struct{})}
	s := c.setup
	var err error
	l.local, err = worker.NewWorker(c.c, &s, c.etcd.client, worker.Memory, func(r worker.Report) { c.hear(l, r) })
	return l, err
}

// openRemote starts a worker in a process of its own.
func (c *crew) openRemote(slots []int, generators int) (*link, error) {
	l := &link{slots: slots, ended: make(chan struct{}), file: filepath.Join(c.dir, fmt.Sprintf("counts-%d", c.files.Add(1)))}
	c.mu.Lock()
	s := c.setup
	c.mu.Unlock()
	s.Counts, s.Generators = l.file, generators
	var err error
	if l.remote, err = child.Start[worker.Order](worker.RoleVariable, worker.RoleWorker, func(r worker.Report) { c.hear(l, r) }, c.fail); err != nil {
		return nil, err
	}
	if err := l.remote.Send(worker.Order{Setup: &s}); err != nil {
		l.remote.Kill()
		return nil, err
	}
	return l, nil
}

// hear takes a report of a worker.
func (c *crew) hear(l *link, r worker.Report) {
	switch {
	case r.Status != nil:
		l.mu.Lock()
		l.latest = *r.Status
		l.mu.Unlock()
		c.mu.Lock()
		c.beyond, c.worst = max(c.beyond, r.Status.Beyond), max(c.worst, r.Status.Worst)
		c.mu.Unlock()
	case r.Left != nil:
		c.left(*r.Left)
	case r.Failed != "":
		c.fail(errors.New(r.Failed))
	case r.Ended != nil:
		l.last = r.Ended
		close(l.ended)
	}
}

// send gives an order.
func (l *link) send(o worker.Order) error {
	if l.remote != nil {
		return l.remote.Send(o)
	}
	return l.local.Obey(o)
}

// status returns what the worker told last.
func (l *link) status() worker.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// end lets the worker close its instances and end. Its last report is there then,
// but if it is gone.
func (l *link) end() error {
	if l.remote != nil {
		return l.remote.End(worker.Order{End: true}, l.ended, endPatience)
	}
	err := l.local.Obey(worker.Order{End: true})
	<-l.ended
	return err
}

// counts returns what the worker counted. It must have ended, or be killed.
func (l *link) counts() (load.Sums, error) {
	if l.remote != nil {
		return worker.CountsIn(l.file)
	}
	s := load.Sums{}
	for _, g := range l.local.Generators {
		s.Add(g.Sums())
	}
	return s, nil
}
