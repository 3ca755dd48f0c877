package waiting

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/consumer"
)

// boundary is how long after a window's start the first and the last of those
// who waited had their permits.
type boundary struct{ first, last *hdrhistogram.Histogram }

var spun atomic.Uint64

// compute keeps a processor busy until stop is true.
func compute(stop *atomic.Bool) {
	for x := uint64(1); !stop.Load(); {
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		spun.Store(x)
	}
}

// observe lets n callers wait over each of so many boundaries, while all processors
// are busy or idle.
func observe(busy bool, n, windows int) (boundary, error) {
	b := boundary{hdrhistogram.New(1, int64(time.Minute), 3), hdrhistogram.New(1, int64(time.Minute), 3)}
	l, err := open(int64(n), 100*time.Millisecond)
	if err != nil {
		return b, err
	}
	defer func() { _ = l.Close() }()
	var stop atomic.Bool
	var computing sync.WaitGroup
	if busy {
		for range runtime.GOMAXPROCS(0) {
			computing.Go(func() { compute(&stop) })
		}
	}
	for range windows {
		awaitWindow(l)
		first, last := wave(l, n)
		_ = b.first.RecordValue(int64(first))
		_ = b.last.RecordValue(int64(last))
	}
	stop.Store(true)
	computing.Wait()
	return b, nil
}

// wave spends the running window, lets n wait, and returns how late after their
// window's start the first and the last of them went on.
func wave(l *consumer.Limiter, n int) (first, last time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	first = time.Hour
	l.TryTake(int64(n))
	for range n {
		all.Go(func() {
			p, _ := l.Take(context.Background(), 1, consumer.Forever)
			late := time.Since(p.Start())
			mu.Lock()
			first, last = min(first, late), max(last, late)
			mu.Unlock()
		})
	}
	all.Wait()
	return first, last
}
