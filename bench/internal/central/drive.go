package central

import (
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/bench/internal/measure"
)

// take takes one permit; callers have one each.
type take func(context.Context) (bool, error)

// driven is what callers got who asked one call after the other.
type driven struct {
	perSecond float64
	latency   *hdrhistogram.Histogram // of a call, in nanoseconds
	cpu       time.Duration           // of this process, for each permit
	errors    int64
	permits   int64
}

// drive has every caller ask again and again for the duration. Reading the time
// around every call is part of what is measured.
func drive(ctx context.Context, callers []take, duration time.Duration) driven {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	each := make([]driven, len(callers))
	var all sync.WaitGroup
	began, cpu := time.Now(), measure.CPU()
	for i, t := range callers {
		all.Go(func() { each[i] = ask(ctx, t) })
	}
	all.Wait()
	d := driven{latency: newHistogram()}
	for _, e := range each {
		d.permits += e.permits
		d.errors += e.errors
		d.latency.Merge(e.latency)
	}
	d.perSecond = float64(d.permits) / time.Since(began).Seconds()
	d.cpu = time.Duration(float64(measure.CPU()-cpu) / float64(max(1, d.permits)))
	return d
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(10*time.Second), 2)
}

func ask(ctx context.Context, t take) driven {
	d := driven{latency: newHistogram()}
	for last := time.Now(); ctx.Err() == nil; {
		ok, err := t(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.errors++
			time.Sleep(time.Millisecond) // as a caller would who retries
			now = time.Now()
		case ok:
			d.permits++
			_ = d.latency.RecordValue(int64(now.Sub(last)))
		}
		last = now
	}
	return d
}
