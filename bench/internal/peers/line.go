package peers

import (
	"sync"
	"sync/atomic"
	"time"
)

// Line is the algorithm that LINE described: a counter for the running second
// of the wall clock under a mutex, and a refused caller who schedules itself
// again for the next second and reads the limit then.
type Line struct {
	limit atomic.Int64
	// second is the length of LINE's second; shorter to save time in a
	// measurement.
	second int64

	mu    sync.Mutex
	epoch int64 // index of the running second
	count int64 // permits issued in it
}

// NewLine returns a limiter for so many permits in every second.
func NewLine(limit int64, second time.Duration) *Line {
	l := &Line{second: int64(second)}
	l.limit.Store(limit)
	return l
}

// Try issues a permit if the running second has one left.
func (l *Line) Try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch := time.Now().UnixNano() / l.second; epoch != l.epoch {
		l.epoch, l.count = epoch, 0
	}
	if l.count >= l.limit.Load() {
		return false
	}
	l.count++
	return true
}

// Call calls f as soon as a try succeeds: now, or in a later second.
func (l *Line) Call(f func()) {
	if l.Try() {
		f()
		return
	}
	now := time.Now().UnixNano()
	time.AfterFunc(time.Duration(l.second-now%l.second), func() { l.Call(f) })
}
