package fleet

import (
	"context"
	"time"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/worker"
)

// churn lets instances leave and join as planned, until ctx ends.
func (c *crew) churn(ctx context.Context, start int64) error {
	next := 0 // the announced ones in turn, over all workers
	for _, d := range c.c.Plan() {
		if !pause(ctx, start+int64(d.At)) {
			return nil
		}
		if d.Kill {
			c.killVictim()
			continue
		}
		slot := next % (c.c.Instances - c.c.Victims())
		next++
		c.mu.Lock()
		l := c.workers[slot%len(c.workers)]
		c.mu.Unlock()
		if err := l.send(worker.Order{Replace: &slot}); err != nil && ctx.Err() == nil {
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
func (c *crew) left(d worker.Departed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Problem == "" {
		c.departed.Announced++
	} else {
		c.departed.Unannounced++
	}
}
