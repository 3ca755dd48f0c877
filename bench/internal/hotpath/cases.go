package hotpath

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	anchor = time.Now()
	// counter has a cache line of its own, as a limiter's counter has.
	counter struct {
		_ [64]byte
		n atomic.Int64
		_ [64]byte
	}
	sink atomic.Int64
)

// The floors: what no limiter that knows the time can be cheaper than.

func readMono() {
	if time.Since(anchor) < 0 {
		sink.Add(1)
	}
}

func readMonoAndAdd() { counter.n.Add(int64(time.Since(anchor)) & 1) }

func readNow() {
	if time.Now().UnixNano() < 0 {
		sink.Add(1)
	}
}

func readNowAndAdd() { counter.n.Add(time.Now().UnixNano() & 1) }

func floors() []measure.Case {
	return []measure.Case{
		{Name: "floor=empty-call", Call: func() {}},
		{Name: "floor=monotonic-read", Call: readMono},
		{Name: "floor=monotonic-read+add", Call: readMonoAndAdd, Beside: readMonoAndAdd},
		{Name: "floor=time.Now", Call: readNow},
		{Name: "floor=time.Now+add", Call: readNowAndAdd},
	}
}

// besideGranted is the floor for a granted call: rule stop reads both clocks.
func besideGranted(name string) func() {
	if name == ourStop {
		return readNowAndAdd
	}
	return readMonoAndAdd
}

// open returns a limiter of a single instance.
func open(p quota.Policy) (*consumer.Limiter, *consumer.FixedSource, error) {
	source := consumer.Fixed(p)
	l, err := consumer.Open(context.Background(), source, "bench",
		consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	return l, source, err
}

// limits returns n limits that no measurement reaches, of different windows.
func limits(n int, permits int64) []quota.Limit {
	var ls []quota.Limit
	for i := range n {
		ls = append(ls, quota.Limit{Permits: permits - int64(i), Window: time.Duration(1+i) * time.Second})
	}
	return ls
}

// changesNote says what the case of a changing share includes.
const changesNote = "the work of the changes, 10 a second, is in it"

// refusedNote says what a refused call consists of.
const refusedNote = "the add that counts it is 0.10 of it, the call of ctx.Err 0.04; on a processor whose other half is in use, all but the reading takes longer"

const (
	ourTry     = "peer=quotient/call=TryAcquire"
	ourAcquire = "peer=quotient/call=Acquire"
	ourStop    = "peer=quotient/call=TryAcquire/outage=stop"
	ourEight   = "peer=quotient/call=TryAcquire/limits=8"
	ourChanges = "peer=quotient/call=TryAcquire/share=changing"
)

// granted returns Quotient's calls that always succeed. The last case is one
// whose share changes ten times a second while it is called; stop ends
// that.
func granted() (cases []measure.Case, stop func(), err error) {
	many := quota.MaxPermits
	ctx := context.Background()
	hold, _, err := open(quota.Policy{Limits: limits(1, many)})
	if err != nil {
		return nil, nil, err
	}
	strict, _, err := open(quota.Policy{Limits: limits(1, many), Outage: quota.OutageStop})
	if err != nil {
		return nil, nil, err
	}
	eight, _, err := open(quota.Policy{Limits: limits(8, many)})
	if err != nil {
		return nil, nil, err
	}
	changing, source, err := open(quota.Policy{Limits: limits(1, many)})
	if err != nil {
		return nil, nil, err
	}
	cases = []measure.Case{
		{Name: ourTry, Call: func() { hold.TryAcquire() }},
		{Name: ourAcquire, Call: func() { _ = hold.Acquire(ctx, time.Second) }},
		{Name: "peer=quotient/call=Take", Call: func() { _, _ = hold.Take(ctx, 1, 0) }},
		{Name: ourStop, Call: func() { strict.TryAcquire() }},
		{Name: ourEight, Call: func() { eight.TryAcquire() }},
		{Name: ourChanges, Call: func() { changing.TryAcquire() }},
	}
	return cases, change(source, many), nil
}

// change sets another limit every tenth of a second, until the returned function is
// called.
func change(source *consumer.FixedSource, permits int64) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for n := int64(0); ; n++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				_ = source.Set(quota.Policy{Limits: limits(1, permits-n%100)})
			}
		}
	}()
	return func() { close(quit); <-done }
}

// refused returns Quotient's calls that always fail.
func refused() ([]measure.Case, error) {
	l, _, err := open(quota.Policy{Limits: limits(1, 0)})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return []measure.Case{
		{Name: ourTry, Call: func() { l.TryAcquire() }},
		{Name: ourAcquire, Call: func() { _ = l.Acquire(ctx, 0) }},
	}, nil
}
