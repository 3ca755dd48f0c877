package bench

import (
	"sync"
	"testing"
	"time"
)

// line is the algorithm that LINE described: a counter for the running second of the
// wall clock under a mutex, and a refused caller that schedules itself again for the
// next second.
type line struct {
	limit  int64
	second int64 // the length of LINE's second; shorter to save time

	mu    sync.Mutex
	epoch int64 // index of the running second
	count int64 // permits issued in it
}

// newLine returns a limiter for so many permits in every second.
func newLine(limit int64, second time.Duration) *line {
	return &line{limit: limit, second: int64(second)}
}

// try issues a permit if the running second has one left.
func (l *line) try() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if epoch := time.Now().UnixNano() / l.second; epoch != l.epoch {
		l.epoch, l.count = epoch, 0
	}
	if l.count >= l.limit {
		return false
	}
	l.count++
	return true
}

// call calls f as soon as a try succeeds: now, or in a later second.
func (l *line) call(f func()) {
	if l.try() {
		f()
		return
	}
	now := time.Now().UnixNano()
	time.AfterFunc(time.Duration(l.second-now%l.second), func() { l.call(f) })
}

func TestLineKeepsItsLimit(t *testing.T) {
	l := newLine(3, time.Hour)
	for i := range 5 {
		if got, want := l.try(), i < 3; got != want {
			t.Errorf("call %d: granted %v, want %v", i, got, want)
		}
	}
}
