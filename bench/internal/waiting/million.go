package waiting

import (
	"runtime"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/consumer"
)

// million is what came of very many waiting functions, a third of which gave up.
type million struct {
	bytes                 float64       // for each that waits
	cancel, serve         time.Duration // of processor time, for each
	refusedOrOutOfTheTurn int
}

// endure queues n functions on a limiter whose window is spent, cancels every
// third, and has the rest served in the next window.
func endure(n int) (million, error) {
	const window = 5 * time.Second // long enough to queue them all
	l, err := open(int64(n), window)
	if err != nil {
		return million{}, err
	}
	defer func() { _ = l.Close() }()
	awaitWindow(l)
	l.TryTake(int64(n)).N()
	var m million
	served := make(chan struct{})
	next, left := 0, n-(n+2)/3 // functions run one after the other
	serve := func(place int) func(consumer.Permit, error) {
		return func(_ consumer.Permit, err error) {
			if err != nil || place < next {
				m.refusedOrOutOfTheTurn++
			}
			next = place
			if left--; left == 0 {
				close(served)
			}
		}
	}
	fs := make([]func(consumer.Permit, error), n)
	for i := range fs {
		fs[i] = serve(i)
	}
	waiters := make([]consumer.Waiter, n)
	before := inUse()
	for i, f := range fs {
		waiters[i] = l.AcquireFunc(1, consumer.Forever, f)
	}
	m.bytes = (inUse() - before) / float64(n)
	runtime.KeepAlive(fs) // the functions are the callers', and were there before
	cpu := measure.CPU()
	for i := 0; i < n; i += 3 {
		if !waiters[i].Stop() {
			m.refusedOrOutOfTheTurn++
		}
	}
	m.cancel = each(measure.CPU()-cpu, n/3)
	cpu = measure.CPU()
	<-served
	m.serve = each(measure.CPU()-cpu, n-(n+2)/3)
	return m, nil
}

func each(d time.Duration, n int) time.Duration { return d / time.Duration(max(1, n)) }

// awaitWindow returns when the limiter's next window has begun.
func awaitWindow(l *consumer.Limiter) {
	time.Sleep(time.Until(l.Status().Shortest().End) + time.Millisecond)
}
