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

// load is what the processors do while somebody waits.
type load struct {
	name string
	// run is called on every processor until stop is true.
	run func(l *consumer.Limiter, stop *atomic.Bool)
	// note and lastNote say what the time to the first and to the last consists of.
	note, lastNote string
}

func loads() []load {
	return []load{
		{name: "idle", note: "the timer's: an idle Go process sleeps in whole milliseconds", lastNote: "a goroutine after the other is made to run"},
		{name: "both cores compute", run: func(_ *consumer.Limiter, stop *atomic.Bool) {
			for x := uint64(1); !stop.Load(); {
				for range 1000 {
					x = x*6364136223846793005 + 1442695040888963407
				}
				spun.Store(x)
			}
		}, note: "the runtime's: nobody looks at timers until a computing goroutine is preempted, after 10 ms", lastNote: "each of them must get a processor from who computes"},
		{name: "both cores call TryAcquire", run: func(l *consumer.Limiter, stop *atomic.Bool) {
			for !stop.Load() {
				l.TryAcquire()
			}
		}, note: "a caller who is refused sees the new window, and serves the queue"},
	}
}

var spun atomic.Uint64

// boundary is how long after a window's start the first and the last of those
// who waited had their permits.
type boundary struct{ first, last *hdrhistogram.Histogram }

// observe lets n callers wait over each of so many boundaries.
func observe(ld load, parked bool, n, windows int) (boundary, error) {
	const window = 100 * time.Millisecond
	b := boundary{hdrhistogram.New(1, int64(time.Minute), 3), hdrhistogram.New(1, int64(time.Minute), 3)}
	l, err := open(int64(n), window)
	if err != nil {
		return b, err
	}
	defer func() { _ = l.Close() }()
	var stop atomic.Bool
	var busy sync.WaitGroup
	if ld.run != nil {
		for range runtime.GOMAXPROCS(0) {
			busy.Go(func() { ld.run(l, &stop) })
		}
	}
	for range windows {
		awaitWindow(l)
		first, last := wave(l, parked, n)
		_ = b.first.RecordValue(int64(first))
		_ = b.last.RecordValue(int64(last))
	}
	stop.Store(true)
	busy.Wait()
	return b, nil
}

// wave spends the running window, lets n wait, and returns how late after their
// window's start the first and the last of them went on.
func wave(l *consumer.Limiter, parked bool, n int) (first, last time.Duration) {
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Add(n)
	first = time.Hour
	served := func(p consumer.Permit) {
		late := time.Since(p.Start())
		mu.Lock()
		first, last = min(first, late), max(last, late)
		mu.Unlock()
		all.Done()
	}
	l.TryTake(int64(n)).N()
	for range n {
		if parked {
			go func() {
				p, _ := l.Take(context.Background(), 1, consumer.Forever)
				served(p)
			}()
		} else {
			l.AcquireFunc(1, consumer.Forever, func(p consumer.Permit, _ error) { served(p) })
		}
	}
	all.Wait()
	return first, last
}
