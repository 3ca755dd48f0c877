package main

import (
	"context"
	"math"
	"time"
)

// departure is an instance that leaves, and is replaced, in the measured time.
type departure struct {
	at   time.Duration
	kill bool // without warning; otherwise announced
}

// plan returns the departures of a run, in order of time: churn at its rate, the
// killed ones evenly among the announced ones, or every instance once.
func (c *config) plan() []departure {
	var list []departure
	if c.rolling {
		// The last one ends in the measured time too, unless that is very short.
		span := max(c.duration-c.restart(), c.duration/2)
		for i := range c.instances {
			list = append(list, departure{at: time.Duration(float64(span) * float64(i) / float64(c.instances))})
		}
		return list
	}
	if c.churn == 0 {
		return nil
	}
	killed := func(n int) float64 { return math.Floor(float64(n) * c.churnKill) }
	for i := 0; ; i++ {
		at := time.Duration((float64(i) + 0.5) / c.churn * float64(time.Second))
		if at >= c.duration {
			return list
		}
		list = append(list, departure{at: at, kill: killed(i+1) > killed(i)})
	}
}

// restart is how long an announced restart takes, and a little more: the settle
// time, up to a boundary of the longest window.
func (c *config) restart() time.Duration { return c.settle + c.growth() + time.Second }

// growth is how long after the settle time a share may come, at most: with a
// window of every length; under other shapes than fixed windows, which hold it
// back, two windows later.
func (c *config) growth() time.Duration {
	if c.shaped() {
		return 3 * c.longest()
	}
	return c.longest()
}

// victimLife is how long a victim must live, so that it is active when it is
// killed: it joins, settles, and serves for a while.
func (c *config) victimLife() time.Duration {
	return c.settle + c.growth() + c.longest() + 5*time.Second
}

// victims is how many instances are in processes of their own, to be killed in
// turn.
func (c *config) victims() int {
	rate := c.churn * c.churnKill
	if rate == 0 || c.rolling {
		return 0
	}
	return int(math.Ceil(rate*c.victimLife().Seconds())) + 1
}

// children reports whether the run has processes besides this one.
func (c *config) children() bool { return c.processes > 1 || c.victims() > 0 || c.http }

// churn lets instances leave and join as planned, until ctx ends.
func (c *crew) churn(ctx context.Context, start int64) error {
	next := 0 // the announced ones in turn, over all workers
	for _, d := range c.c.plan() {
		if !pause(ctx, start+int64(d.at)) {
			return nil
		}
		if d.kill {
			c.killVictim()
			continue
		}
		slot := next % (c.c.instances - c.c.victims())
		next++
		c.mu.Lock()
		l := c.workers[slot%len(c.workers)]
		c.mu.Unlock()
		if err := l.send(order{Replace: &slot}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// pause waits until the instant, or returns false because ctx ended.
func pause(ctx context.Context, at int64) bool {
	t := time.NewTimer(time.Duration(at - time.Now().UnixNano()))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// left counts an instance that has left.
func (c *crew) left(d departed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Problem == "" {
		c.departed.Announced++
	} else {
		c.departed.Unannounced++
	}
}
