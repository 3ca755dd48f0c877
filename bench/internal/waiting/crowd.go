package waiting

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
)

// crowd is what came of many who waited at once.
type crowd struct {
	bytes float64       // heap and stacks, for each that waits
	cpu   time.Duration // of all, from the first call until the last was served
	last  time.Duration // from the first call until the last was served
	// misplaced is the part that was served in another window than its place in
	// the queue says.
	misplaced float64
}

// inUse returns the bytes of heap and stacks in use.
func inUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// warm starts and ends n goroutines: the runtime keeps what describes them, and
// the first crowd would pay for all.
func warm(n int64) {
	end := make(chan struct{})
	var all sync.WaitGroup
	for range n {
		all.Go(func() { <-end })
	}
	close(end)
	all.Wait()
}

// gather lets n callers wait, of whom share are served in a window.
func gather(c contender, n, share int64, window time.Duration) (crowd, error) {
	wait, done, err := c.open(share, window)
	if err != nil {
		return crowd{}, err
	}
	defer done()
	var place, rank, misplaced atomic.Int64
	var all sync.WaitGroup
	all.Add(int(n))
	one := func() {
		mine := place.Add(1) - 1
		wait(func() {
			if served := rank.Add(1) - 1; served/share != mine/share {
				misplaced.Add(1)
			}
			all.Done()
		})
	}
	before := inUse()
	began, cpu := time.Now(), measure.CPU()
	for range n {
		if c.parks {
			go one()
		} else {
			one()
		}
	}
	for place.Load() < n { // until all have asked
		runtime.Gosched()
	}
	asked := measure.CPU() - cpu
	waiting := max(1, n-rank.Load())
	bytes := (inUse() - before) / float64(waiting)
	cpu = measure.CPU()
	all.Wait()
	return crowd{
		bytes: bytes, cpu: asked + measure.CPU() - cpu, last: time.Since(began),
		misplaced: float64(misplaced.Load()) / float64(n),
	}, nil
}
