package waiting

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/bench/internal/report"
)

// newWindows measures how soon those who are refused, and ask again and again on
// every processor, see that a window has begun: they read the clock, and wait for
// no timer that would tell them.
func newWindows(_ context.Context, o measure.Options, sec *report.Section, _ *measure.Samples) error {
	o.Log("refused, until a window begins")
	windows := 50
	if o.Quick {
		windows = 3
	}
	wrong, first, err := seen(windows)
	if err != nil {
		return err
	}
	sec.Text("Every processor asks by Take with maxWait 0 and is refused nearly always. Over %d windows, the last call that began in a window which "+
		"had a permit, and was refused, began %s us (p99) after the window's start; the first permit was there after %s us (p50), %s us (p99), "+
		"the time included in which other processes had the processors.", first.TotalCount(), us(wrong, 99), us(first, 50), us(first, 99))
	sec.Aim("refused in a window that has permits, us after its start, p99, busy cores", "%.0f", 1000, float64(wrong.ValueAtQuantile(99))/1000,
		"no flag that a timer would have to clear: a refusal reads the clock")
	return nil
}

// seen observes so many windows of one permit each: how long after the start the
// call before the one that got it had begun, if after the start at all; and when
// the permit was there.
func seen(windows int) (wrong, first *hdrhistogram.Histogram, err error) {
	l, err := open(1, 100*time.Millisecond)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	wrong, first = hdrhistogram.New(1, int64(time.Minute), 3), hdrhistogram.New(1, int64(time.Minute), 3)
	var mu sync.Mutex
	var done atomic.Bool
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			var refused time.Time // when the last call began that was refused
			for !done.Load() {
				began := time.Now()
				p, err := l.Take(context.Background(), 1, 0)
				if err != nil {
					refused = began
					continue
				}
				late := time.Since(p.Start())
				mu.Lock()
				_ = wrong.RecordValue(max(0, int64(refused.Sub(p.Start()))))
				_ = first.RecordValue(int64(late))
				done.Store(first.TotalCount() >= int64(windows))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return wrong, first, nil
}
