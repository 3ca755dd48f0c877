package waiting

import (
	"context"
	"sync"
	"time"
)

// bare is the least that parked goroutines need to be served in order: a queue
// of channels, and somebody who wakes a share of them at every window's start.
// It knows no limits, no deadlines and no clock; it is the floor, not a limiter.
type bare struct {
	mu    sync.Mutex
	queue []chan struct{}
}

func (b *bare) wait(ctx context.Context, served func()) {
	ch := make(chan struct{}, 1)
	b.mu.Lock()
	b.queue = append(b.queue, ch)
	b.mu.Unlock()
	select {
	case <-ch:
	case <-ctx.Done():
	}
	served()
}

func (b *bare) serve(ctx context.Context, share int64, window time.Duration) {
	tick := time.NewTicker(window)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		b.mu.Lock()
		n := min(int(share), len(b.queue))
		for _, ch := range b.queue[:n] {
			ch <- struct{}{}
		}
		b.queue = b.queue[n:]
		b.mu.Unlock()
	}
}

// openBare opens it as a contender.
func openBare(share int64, window time.Duration) (wait func(served func()), done func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	b := &bare{}
	go b.serve(ctx, share, window)
	return func(served func()) { b.wait(ctx, served) }, cancel, nil
}
