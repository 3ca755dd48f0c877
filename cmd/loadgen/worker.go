package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

// worker is the instances of one process, with the generators that make their
// calls. Each instance has a session and a limiter of its own, as if it were a
// process.
type worker struct {
	*setup
	client     *clientv3.Client
	arrival    load.Arrival
	parts      []float64 // of all calls, by slot
	weights    []int64   // by slot
	tell       func(report)
	shared     *shared
	sender     *sender // nil if permits make no requests
	generators []*generator
	making     sync.WaitGroup // the generators' goroutines
	busy       sync.WaitGroup // joins, leaves, and waits for readiness
	ready      atomic.Int64   // instances that were active once

	ctx  context.Context // until end
	stop context.CancelFunc

	mu    sync.Mutex
	slots map[int]*instance // of this worker; nil while the instance joins
	all   map[*instance]bool
	// beyond is how far an instance's clock has been from the provider's beyond
	// what its guard covers, at most.
	beyond time.Duration
}

// newWorker starts a worker without instances. It counts in blocks from room.
func newWorker(s *setup, client *clientv3.Client, room func() *load.Block, tell func(report)) (*worker, error) {
	limits, err := quota.ParseLimits(s.Limits)
	if err != nil {
		return nil, err
	}
	skew, err := load.ParseSkew(s.Skew)
	if err != nil {
		return nil, err
	}
	arrival, err := load.ParseArrival(s.Arrival)
	if err != nil {
		return nil, err
	}
	weights, err := weightsBy(s.Weights, s.Instances)
	if err != nil {
		return nil, err
	}
	w := &worker{
		setup: s, client: client, arrival: arrival, weights: weights, parts: s.calls(skew, weights), tell: tell,
		slots: map[int]*instance{}, all: map[*instance]bool{},
		shared: &shared{
			window: int64(s.Window), cell: int64(s.Cell), maxWait: s.MaxWait, paced: s.Paced, room: room, use: func(int64, load.Request) {},
			demand: load.Demand{Ratio: s.Demand, Skew: skew, Instances: s.Instances},
		},
	}
	w.shared.limits.Store(&limits)
	w.shared.start.Store(load.Never)
	w.shared.stop.Store(load.Never)
	if s.Target != "" {
		w.sender = newSender(s.Target)
		w.shared.use = w.sender.send
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for range max(1, s.Generators) {
		g := newGenerator(w.shared)
		w.generators = append(w.generators, g)
		w.making.Go(g.run)
	}
	w.busy.Go(w.reportStatus)
	return w, nil
}

// obey implements obedient. It does not block.
func (w *worker) obey(o order) error {
	switch {
	case o.Join != nil:
		return w.join(o.Join)
	case o.Replace != nil:
		w.replace(*o.Replace)
	case o.Limits != "":
		limits, err := quota.ParseLimits(o.Limits)
		if err != nil {
			return err
		}
		w.shared.limits.Store(&limits)
	case o.Start != 0:
		w.shared.start.Store(o.Start)
	case o.Stop != 0:
		w.shared.stop.Store(o.Stop)
	case o.End:
		go w.end()
	default:
		return fmt.Errorf("order %+v is not for a worker", o)
	}
	return nil
}

// reportStatus tells how the worker fares, until it ends.
func (w *worker) reportStatus() {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.tell(report{Status: w.status()})
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *worker) status() *status {
	s := &status{Ready: int(w.ready.Load())}
	for _, g := range w.generators {
		s.Issued += g.issued.Load()
	}
	s.CPU, s.MaxRSS = resources()
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { s.Beyond = w.beyond }()
	for in := range w.all {
		st := in.limiter.Status()
		if st.State == quota.StateActive {
			s.Active++
		} else {
			s.Problem = st.Problem
		}
		w.beyond = max(w.beyond, w.Guard.exceeded(&st, in.session.Clock().Wall))
		if w.Shares {
			s.Shares = append(s.Shares, held{int64(in.slot), in.since, st.Share})
		}
	}
	return s
}

// waiting returns the calls that wait in limiters' queues.
func (w *worker) waiting() (n int64) {
	for _, g := range w.generators {
		n += g.waiting.Load()
	}
	return n
}

// end stops the load, closes all instances and says so. From then on no permit
// can come that is not counted.
func (w *worker) end() {
	if now := time.Now().UnixNano(); now < w.shared.stop.Load() {
		w.shared.stop.Store(now)
	}
	w.making.Wait()
	w.settleWaiters(w.MaxWait + time.Second)
	w.stop()
	w.busy.Wait()
	err := w.closeAll()
	w.settleWaiters(time.Second)
	if n := w.waiting(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d calls that waited never got an answer: the counts may lack their permits", n))
	}
	e := &ended{}
	if w.sender != nil {
		w.sender.end(e)
	}
	var failed error
	e.Took, e.Delay, failed = w.histograms()
	if err = errors.Join(err, failed); err != nil {
		w.tell(report{Failed: err.Error()})
	}
	w.tell(report{Status: w.status()})
	w.tell(report{Ended: e})
}

// histograms returns those of all generators, encoded. None may be running.
func (w *worker) histograms() (took, delay []byte, err error) {
	calls, waits := hdrhistogram.New(1, int64(slowest), 3), hdrhistogram.New(1, int64(slowest), 3)
	for _, g := range w.generators {
		calls.Merge(g.took)
		g.waited.Lock()
		waits.Merge(g.waited.Histogram)
		g.waited.Unlock()
		// Cannot fail: 0 is within the histogram's range.
		_ = waits.RecordValues(0, g.atOnce)
	}
	took, err = calls.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, nil, err
	}
	delay, err = waits.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	return took, delay, err
}

// closeAll closes the instances. What does not close in good order ends with its
// lease.
func (w *worker) closeAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(together)
	for in := range w.all {
		group.Go(func() error {
			_ = in.limiter.Close()
			if err := in.session.Close(); err != nil {
				return fmt.Errorf("leaving: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// settleWaiters waits until no call waits, but not for long.
func (w *worker) settleWaiters(atMost time.Duration) {
	for end := time.Now().Add(atMost); w.waiting() > 0 && time.Now().Before(end); {
		time.Sleep(tick)
	}
}
