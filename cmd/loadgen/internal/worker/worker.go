// Package worker is a child process with some instances of the fleet, and the
// generators that make their calls. It also has the provider that they call, which runs
// in the parent.
package worker

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

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/cli/child"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/internal/trace"
	"github.com/quotient-limiter/quotient/quota"
)

// Look is how often the fleet is looked at.
const Look = 100 * time.Millisecond

// Worker is the instances of one process, with the generators that make their
// calls. Each instance has a session and a limiter of its own, as if it were a
// process.
type Worker struct {
	c          *config.Config
	provider   string
	client     *clientv3.Client
	policy     quota.Policy // without limits
	tell       func(Report)
	shared     *shared
	sender     *sender       // nil if permits make no requests
	trace      *trace.Writer // nil without --trace
	generators []*generator
	making     sync.WaitGroup // the generators' goroutines
	busy       sync.WaitGroup // joins, leaves, and waits for readiness
	ready      atomic.Int64   // instances that were active once

	ctx  context.Context // until end
	stop context.CancelFunc

	mu    sync.Mutex
	slots map[int]*instance // those that have joined, and do not leave
	all   map[*instance]bool
	// beyond is how far an instance's clock has been from the provider's beyond
	// what its guard covers, at most.
	beyond                 time.Duration
	announced, unannounced int // instances that have left to be replaced
	firstLoan              *hdrhistogram.Histogram
}

// newWorker starts a worker, whose instances join. Each generator has a sheet of counts.
func newWorker(c *config.Config, s *Setup, client *clientv3.Client, sheet *load.Sheet, counts []byte, tell func(Report)) (*Worker, error) {
	w := &Worker{
		c: c, provider: s.Provider, client: client, policy: c.Policy(nil, ""), tell: tell,
		slots: map[int]*instance{}, all: map[*instance]bool{}, firstLoan: hdrhistogram.New(1, int64(Slowest), 3),
	}
	w.shared = &shared{c: c, placing: c.Placing(s.Tolerance), use: func(int64, load.Request) {}}
	if err := w.obey(Order{State: &s.State}); err != nil {
		return nil, err
	}
	if s.Target != "" {
		w.sender = newSender(s.Target, s.Secret)
		w.shared.use = w.sender.send
	}
	if c.Trace != "" {
		var err error
		if w.trace, err = trace.Create(c.Trace, c.Ahead, func(err error) { tell(Report{Failed: err.Error()}) }); err != nil {
			return nil, err
		}
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for ; len(counts) > 0; counts = counts[sheet.Bytes():] {
		g := newGenerator(w.shared, sheet.Tallies(counts))
		w.generators = append(w.generators, g)
		w.making.Go(g.run)
	}
	w.busy.Go(w.reportStatus)
	w.join(s.Slots, s.Retry)
	return w, nil
}

// obey does what the parent orders. It does not block.
func (w *Worker) obey(o Order) error {
	if o.Replace != nil {
		w.replace(*o.Replace)
	}
	if o.State == nil {
		return nil
	}
	limits, err := quota.ParseLimits(o.State.Limits)
	w.shared.limits.Store(&limits)
	w.shared.start.Store(o.State.Start)
	w.shared.stop.Store(o.State.Stop)
	return err
}

func (w *Worker) reportStatus() {
	for {
		select {
		case <-time.After(Look):
			w.tell(w.status())
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *Worker) status() Report {
	s := Report{
		Ready: int(w.ready.Load()), Issued: w.shared.issued.Load(), Worst: time.Duration(w.shared.worst.Load()),
		Shares: make([]int64, len(w.c.Bands())),
	}
	s.CPU, s.MaxRSS = child.Used()
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Joined = len(w.all)
	for in := range w.all {
		st := in.limiter.Status()
		if st.State == quota.StateActive {
			s.Active++
		} else {
			s.Problem = st.Problem
		}
		w.beyond = max(w.beyond, exceeded(&w.policy, func() int64 { return feed.Inside(in.session).Clock().Wall() - int64(w.c.Ahead) }))
		w.noteLoans(in, &st)
		s.Shares[w.c.Band(in.slot)] += st.Shortest().Share
		if in.served.Load() {
			s.Serving++
		}
	}
	s.Beyond, s.Announced, s.Unannounced = w.beyond, w.announced, w.unannounced
	return s
}

// noteLoans notes how long the first loans took that came since the last look, once measuring has
// begun. Looks are more frequent than windows, so there is mostly one.
func (w *Worker) noteLoans(in *instance, st *consumer.Status) {
	n, took := st.FirstLoans-in.firstLoans, st.FirstLoanTime-in.firstLoanTime
	in.firstLoans, in.firstLoanTime = st.FirstLoans, st.FirstLoanTime
	if n > 0 && w.c.Now() >= w.shared.start.Load() {
		// Cannot fail: the value is within the histogram's range.
		_ = w.firstLoan.RecordValues(int64(min(took/time.Duration(n), Slowest)), n)
	}
}

// end stops the load, closes all instances and says so. From then on no permit
// can come that is not counted.
func (w *Worker) end() {
	if now := w.c.Now(); now < w.shared.stop.Load() {
		w.shared.stop.Store(now)
	}
	w.making.Wait()
	w.settleWaiters(w.c.MaxWait + time.Second)
	w.stop()
	w.busy.Wait()
	err := errors.Join(w.closeAll(), w.trace.Close())
	w.settleWaiters(time.Second)
	if n := w.shared.waiting.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d calls that waited never got an answer: the counts may lack their permits", n))
	}
	e := &Ended{}
	if w.sender != nil {
		w.sender.end(e)
	}
	e.Took, e.Delay = w.histograms()
	if err != nil {
		w.tell(Report{Failed: err.Error()})
	}
	last := w.status()
	e.FirstLoan = w.firstLoan.Export()
	last.Ended = e
	w.tell(last)
}

// histograms returns those of all generators. None may be running.
func (w *Worker) histograms() (took, delay *hdrhistogram.Snapshot) {
	calls, waits := hdrhistogram.New(1, int64(Slowest), 3), hdrhistogram.New(1, int64(Slowest), 3)
	for _, g := range w.generators {
		calls.Merge(g.took)
		g.waited.Lock()
		waits.Merge(g.waited.Histogram)
		g.waited.Unlock()
		// Cannot fail: 0 is within the histogram's range.
		_ = waits.RecordValues(0, g.atOnce)
	}
	return calls.Export(), waits.Export()
}

// closeAll closes the instances. An instance that does not close in good order ends
// with its lease.
func (w *Worker) closeAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(together)
	for in := range w.all {
		group.Go(func() error {
			_ = in.limiter.Close()
			if err := in.session.Close(); err != nil && !errors.Is(err, coordinator.ErrUnreachable) {
				return fmt.Errorf("leaving: %w", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// settleWaiters waits until no call waits, but not for long.
func (w *Worker) settleWaiters(atMost time.Duration) {
	for end := time.Now().Add(atMost); w.shared.waiting.Load() > 0 && time.Now().Before(end); {
		time.Sleep(tick)
	}
}
