package main

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
)

// link is the parent's end of a worker: one in this very process, or one in a
// process of its own.
type link struct {
	slots  []int    // of the fleet
	remote *process // nil: the worker is in this process
	local  *worker
	file   string // counts of a remote worker
	ended  chan *ended

	mu     sync.Mutex
	latest status
}

// sums are counts by the length of their windows.
type sums map[time.Duration][]load.Count

// add merges more counts in.
func (s sums) add(more sums) {
	for length, counts := range more {
		s[length] = load.Merge(s[length], counts)
	}
}

// openLocal starts a worker in this process.
func (c *crew) openLocal(slots []int) (*link, error) {
	l := &link{slots: slots, ended: make(chan *ended, 1)}
	s := c.setup
	var err error
	l.local, err = newWorker(&s, c.etcd.client, memory, func(r report) { c.hear(l, r) })
	return l, err
}

// openRemote starts a worker in a process of its own.
func (c *crew) openRemote(slots []int, generators int) (*link, error) {
	l := &link{slots: slots, file: filepath.Join(c.dir, fmt.Sprintf("counts-%d", c.files.Add(1)))}
	c.mu.Lock()
	s := c.setup
	c.mu.Unlock()
	s.Counts, s.Generators = l.file, generators
	var err error
	l.remote, err = spawn(roleWorker, &s, func(r report) { c.hear(l, r) }, c.fail)
	return l, err
}

// hear takes a report of a worker.
func (c *crew) hear(l *link, r report) {
	switch {
	case r.Status != nil:
		l.mu.Lock()
		l.latest = *r.Status
		l.mu.Unlock()
		c.mu.Lock()
		c.beyond = max(c.beyond, r.Status.Beyond)
		c.mu.Unlock()
	case r.Left != nil:
		c.left(*r.Left)
	case r.Failed != "":
		c.fail(fmt.Errorf("%s", r.Failed))
	case r.Ended != nil && l.ended != nil:
		l.ended <- r.Ended
	}
}

// send gives an order.
func (l *link) send(o order) error {
	if l.remote != nil {
		return l.remote.send(o)
	}
	return l.local.obey(o)
}

// status returns what the worker told last.
func (l *link) status() status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// end lets the worker close its instances and end.
func (l *link) end() (*ended, error) {
	if l.remote != nil {
		return l.remote.end()
	}
	if err := l.local.obey(order{End: true}); err != nil {
		return nil, err
	}
	return <-l.ended, nil
}

// counts returns what the worker counted. It must have ended, or be killed.
func (l *link) counts() (sums, error) {
	if l.remote != nil {
		return countsIn(l.file)
	}
	s := sums{}
	for _, g := range l.local.generators {
		s.add(sums{l.local.Cell: g.tally.Counts()})
		s.add(sums{bucket: g.fine.Counts()})
	}
	return s, nil
}
