package live_test

import (
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// issued counts permits by the starts of their windows: by itself, never by the limiters'
// own counters. It shows that windows are used up; that none is over is for the trace.
type issued struct {
	mu      sync.Mutex
	windows map[int64]int64
	all     int64
}

func (i *issued) add(p consumer.Permit) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.windows == nil {
		i.windows = map[int64]int64{}
	}
	i.windows[p.Start().UnixNano()] += p.N()
	i.all += p.N()
}

func (i *issued) total() int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all
}

// full counts the windows that start at or after from and have at least n permits.
func (i *issued) full(from, n int64) (windows int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for start, got := range i.windows {
		if start >= from && got >= n {
			windows++
		}
	}
	return windows
}

// of returns the permits of windows that start at an instant.
func (i *issued) of(start time.Time) int64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.windows[start.UnixNano()]
}
