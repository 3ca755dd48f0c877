package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
)

// crash kills one of the processes after the other at the times of the flags, and
// starts each anew, with as many instances.
func (c *crew) crash(ctx context.Context, start int64, tell func(string)) error {
	for _, at := range c.c.Crashes {
		if !pause(ctx, start+int64(at.At)) {
			return nil
		}
		c.mu.Lock()
		if !c.closing && len(c.workers) > 0 {
			l := c.workers[0]
			c.workers = c.workers[1:]
			tell(fmt.Sprintf("%d instances crash", len(l.slots)))
			c.replaceLocked(l, c.addWorker)
		}
		c.mu.Unlock()
	}
	return nil
}

// killVictim kills the oldest victim and starts another in its slot.
func (c *crew) killVictim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || len(c.victims) == 0 {
		return
	}
	l := c.victims[0]
	c.victims = c.victims[1:]
	c.replaceLocked(l, func(slots []int) error { return c.addVictim(slots, true) })
}

// replaceLocked kills a worker, in the background, takes its counts over, and then
// starts another for its slots.
func (c *crew) replaceLocked(l *link, again func(slots []int) error) {
	c.departed.Killed += len(l.slots)
	c.issued += l.status().Issued
	c.busy.Go(func() {
		l.remote.Kill()
		counts, err := l.counts()
		c.mu.Lock()
		c.past.Add(counts)
		c.pastCPU += l.remote.Used()
		c.mu.Unlock()
		if err == nil {
			err = again(l.slots)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// addVictim starts a process of one instance, which is to be killed.
func (c *crew) addVictim(slots []int, retry bool) error {
	return c.add(&c.victims, slots, 1, retry)
}

// addWorker starts a process in place of one that crashed.
func (c *crew) addWorker(slots []int) error {
	return c.add(&c.workers, slots, c.generators(), true)
}

// add starts a process, while the run is under way, in one of the two lists.
func (c *crew) add(list *[]*link, slots []int, generators int, retry bool) error {
	l, err := c.openRemote(slots, generators)
	if err != nil {
		return err
	}
	c.mu.Lock()
	*list = append(*list, l)
	start, stop, limits := c.start, c.stop, c.setup.Limits
	c.mu.Unlock()
	// What the others were told while this one was being started.
	return errors.Join(l.send(worker.Order{Start: start}), l.send(worker.Order{Stop: stop}), l.send(worker.Order{Limits: limits}),
		l.send(worker.Order{Join: &worker.Joining{Slots: slots, Retry: retry}}))
}
