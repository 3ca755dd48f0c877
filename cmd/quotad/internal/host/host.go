// Package host holds the limiters of a host: one session with etcd, and one limiter for
// each provider, opened when it is first asked for.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/prommetrics"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	// ErrUnknown: the provider has no policy, so nothing is opened for it. See Unknown.
	ErrUnknown = errors.New("no limit is set")
	// ErrForbidden: etcd does not let quotad use the provider. See Forbidden.
	ErrForbidden = errors.New("forbidden provider")
	// ErrFull: Options.Max providers are open.
	ErrFull = errors.New("too many providers")
	// ErrClosed: the host is closed.
	ErrClosed = errors.New("quotad is stopping: try again")
)

// Options of a Host.
type Options struct {
	// Known returns nil if the provider exists, an error that is ErrUnknown if it does
	// not, and another one if that cannot be found out. It is called by one goroutine at
	// a time.
	Known func(ctx context.Context, provider string) error
	// Keep are providers that are opened by New and stay open.
	Keep []string
	// Max bounds the open providers, those of Keep included; at least 1.
	Max int
	// Idle is the time without a call after which a provider is closed, so that its share
	// goes to other hosts; positive.
	Idle time.Duration
	Log  *slog.Logger
}

// Host has the limiters of a host. Its methods are safe for concurrent use.
type Host struct {
	source   consumer.Source
	metrics  *prommetrics.Metrics
	registry *prometheus.Registry
	o        Options
	lookups  lookups

	opening singleflight.Group  // of providers that etcd is asked about, by name
	asking  *semaphore.Weighted // counts them; maxAsked at most
	ctx     context.Context     // ends with Close
	end     context.CancelFunc

	mu     sync.Mutex
	open   map[string]*provider
	leaves bool
	closed bool
	tidy   *time.Timer
	ending sync.WaitGroup // limiters that are being closed as idle, and openings
}

type provider struct {
	limiter *consumer.Limiter
	last    time.Time // of the newest call
	opened  time.Time
	keep    bool
}

// New returns a host whose limiters have the source, and opens the providers to keep. The
// caller closes the host, and then the source.
func New(ctx context.Context, source consumer.Source, o Options) (*Host, error) {
	h := &Host{source: source, metrics: prommetrics.New(), registry: prometheus.NewRegistry(), o: o, open: map[string]*provider{}, asking: semaphore.NewWeighted(maxAsked)}
	h.registry.MustRegister(h.metrics)
	h.ctx, h.end = context.WithCancel(context.Background())
	h.lookups = newLookups(o.Known)
	if len(o.Keep) > o.Max {
		return nil, fmt.Errorf("%w: %d are to be open, at most %d can be", ErrFull, len(o.Keep), o.Max)
	}
	for _, name := range o.Keep {
		if _, err := h.enter(ctx, name, true); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tidy = time.AfterFunc(o.Idle/2, h.closeIdle)
	return h, nil
}

// Limiter returns the limiter of a provider, and opens it if need be. Callers ask for each
// call and do not keep the limiter: it is closed when nobody has asked for Options.Idle.
// The first call for a provider waits for etcd's answer, as long as ctx allows, after others
// that ask for the first time. If it leaves before, the provider is opened all the same, for the next
// call. The error is ErrUnknown, ErrFull, ErrClosed, that of quota.ValidateProvider, that of
// Options.Known, or that etcd has not answered while ctx allowed to wait.
func (h *Host) Limiter(ctx context.Context, name string) (*consumer.Limiter, error) {
	if l, err := h.existing(name); l != nil || err != nil {
		return l, err
	}
	if err := quota.ValidateProvider(name); err != nil {
		return nil, err
	}
	if err := h.lookups.remembered(name); err != nil {
		return nil, err
	}
	opened := h.opening.DoChan(name, func() (any, error) { return h.ask(name) })
	select {
	case o := <-opened:
		l, _ := o.Val.(*consumer.Limiter)
		return l, o.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("%s is not open here, and etcd has not said yet whether it has a limit: try again", name)
	}
}

// ask opens a provider if etcd knows it.
func (h *Host) ask(name string) (*consumer.Limiter, error) {
	h.mu.Lock()
	closed := h.closed
	if !closed {
		h.ending.Add(1)
		defer h.ending.Done()
	}
	h.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if !h.asking.TryAcquire(1) {
		return nil, fmt.Errorf("etcd is being asked about %d other providers: try again", maxAsked)
	}
	defer h.asking.Release(1)
	if err := h.lookups.known(h.ctx, name); err != nil {
		return nil, err
	}
	return h.enter(h.ctx, name, false)
}

// Opened is Limiter for a provider that is open. It returns nil for others.
func (h *Host) Opened(name string) *consumer.Limiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.open[name]
	if p == nil {
		return nil
	}
	p.last = time.Now()
	return p.limiter
}

// existing returns the limiter if it is open, nil if it could be opened, or why not.
func (h *Host) existing(name string) (*consumer.Limiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if p := h.open[name]; p != nil {
		p.last = time.Now()
		return p.limiter, nil
	}
	if len(h.open) >= h.o.Max {
		return nil, h.full()
	}
	return nil, nil
}

func (h *Host) full() error {
	return fmt.Errorf("%w: %d are open, which is the most (--max-providers)", ErrFull, h.o.Max)
}

func (h *Host) enter(ctx context.Context, name string, keep bool) (*consumer.Limiter, error) {
	if l, err := h.existing(name); l != nil || err != nil {
		return l, err
	}
	l, err := h.metrics.Open(ctx, h.source, name, consumer.Options{Logger: h.o.Log})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch other := h.open[name]; {
	case other != nil: // opened at the same moment
		other.last = time.Now()
		return other.limiter, l.Close()
	case h.closed:
		return nil, errors.Join(ErrClosed, l.Close())
	case len(h.open) >= h.o.Max:
		return nil, errors.Join(h.full(), l.Close())
	}
	h.open[name] = &provider{limiter: l, last: time.Now(), opened: time.Now(), keep: keep}
	h.o.Log.Info("provider opened", "provider", name)
	return l, nil
}

// busy reports whether a provider has calls that wait, or that are under way by a limit in flight.
func busy(st consumer.Status) bool {
	return st.Waiting > 0 || slices.ContainsFunc(st.Limits, func(u consumer.LimitUse) bool { return u.Limit.InFlight && u.Used > 0 })
}

// closeIdle closes the limiters that nobody uses.
func (h *Host) closeIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for name, p := range h.open {
		if p.keep || time.Since(p.last) < h.o.Idle || busy(p.limiter.Status()) {
			continue
		}
		delete(h.open, name)
		h.o.Log.Info("provider closed: no calls", "provider", name, "idle", h.o.Idle)
		h.ending.Go(func() { h.shut(name, p.limiter) }) // which may wait for etcd
	}
	h.tidy.Reset(h.o.Idle / 2)
}

func (h *Host) shut(name string, l *consumer.Limiter) {
	if err := l.Close(); err != nil {
		h.o.Log.Warn("provider closed, but etcd may still count this host", "provider", name, "error", err,
			"do", "nothing, unless quota-admin instances "+name+" goes on showing this host: its share is unused until quotad restarts")
	}
}

// Statuses returns the state of all open providers, sorted by name.
func (h *Host) Statuses() []consumer.Status {
	h.mu.Lock()
	all := make([]*consumer.Limiter, 0, len(h.open))
	for _, name := range slices.Sorted(maps.Keys(h.open)) {
		all = append(all, h.open[name].limiter)
	}
	h.mu.Unlock() // calls do not wait until all is read
	statuses := make([]consumer.Status, len(all))
	for i, l := range all {
		statuses[i] = l.Status()
	}
	return statuses
}

// Open returns for how long a provider has been open; 0 if it is not.
func (h *Host) Open(name string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.open[name]; p != nil {
		return time.Since(p.opened)
	}
	return 0
}

// Status returns the state of a provider; false if it is not open. It opens nothing.
func (h *Host) Status(name string) (consumer.Status, bool) {
	h.mu.Lock()
	p := h.open[name]
	h.mu.Unlock()
	if p == nil {
		return consumer.Status{}, false
	}
	return p.limiter.Status(), true
}

// Drain makes Ready return an error: this host's share goes to others. Permits are still
// given.
func (h *Host) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaves = true
}

// Ready returns nil if this host has its share of each provider of Options.Keep, or the reason why
// it has none of one. What others lend before that is no reason to be ready: while a fleet is
// replaced host by host, some must have shares that they can lend.
func (h *Host) Ready() error {
	h.mu.Lock()
	ends := h.closed || h.leaves
	h.mu.Unlock()
	if ends {
		return ErrClosed
	}
	for _, name := range h.o.Keep {
		l, _ := h.existing(name)
		switch s, _ := h.Status(name); {
		case s.State == quota.StateActive, s.State == quota.StatePausing, s.State == quota.StatePaused:
		case s.State == quota.StateStale && l != nil && l.Delay(1) < consumer.Forever: // outage rule hold
		default:
			return fmt.Errorf("%s %s", name, cause.Says(s.State, 0, s.Problem))
		}
	}
	return nil
}

// Clock returns the clock by which permits are issued.
func (h *Host) Clock() *clock.Clock { return feed.Inside(h.source).Clock() }

// Registry has the metrics of the open providers, of package prommetrics. The ways in add
// their own.
func (h *Host) Registry() *prometheus.Registry { return h.registry }

// Metrics serves what Registry has.
func (h *Host) Metrics() http.Handler {
	return promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Close closes all limiters: callers that wait get consumer.ErrClosed, later ones
// ErrClosed. It returns the first error. A second Close returns nil.
func (h *Host) Close() error {
	h.mu.Lock()
	all := h.open
	h.open, h.closed = map[string]*provider{}, true
	h.end()
	if h.tidy != nil {
		h.tidy.Stop()
	}
	h.mu.Unlock()
	var closing errgroup.Group
	for _, p := range all {
		closing.Go(p.limiter.Close)
	}
	defer h.ending.Wait()
	return closing.Wait()
}
