package prommetrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// Metrics is a prometheus.Collector of the limiters that were opened through it.
// Its methods are safe for concurrent use. Make one with New.
//
// Use one for each source: a provider is shown once, however often it was
// opened.
type Metrics struct {
	waits *prometheus.HistogramVec

	mu       sync.Mutex
	limiters map[string][]*consumer.Limiter // by provider, in the order of opening
}

// New returns a collector without limiters.
func New() *Metrics {
	return &Metrics{
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "quotient_wait_seconds",
			Help: "How long callers waited that had to wait, by result: granted, refused or cancelled.",
			// Up to the longest window; a native histogram is finer, where the
			// server takes it.
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100,
			NativeHistogramMinResetDuration: time.Hour,
		}, []string{"provider", "result"}),
		limiters: map[string][]*consumer.Limiter{},
	}
}

// Open opens a limiter as consumer.Open does, and shows it until it is closed. The
// options' OnWait is called too.
//
// Open all limiters of a provider through the same Metrics: consumer.Open refuses one
// whose options differ, and only the first one's OnWait is called.
func (m *Metrics) Open(ctx context.Context, source consumer.Source, provider string, o consumer.Options) (*consumer.Limiter, error) {
	o.OnWait = m.waited(provider, o.OnWait)
	limiter, err := consumer.Open(ctx, source, provider, o)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if len(m.limiters[provider]) == 0 {
			m.forget(provider)
		}
		return nil, err
	}
	m.limiters[provider] = append(m.limiters[provider], limiter)
	return limiter, nil
}

// waited returns a function that observes a wait, and then calls next.
func (m *Metrics) waited(provider string, next func(time.Duration, error)) func(time.Duration, error) {
	granted := m.waits.WithLabelValues(provider, "granted")
	refused := m.waits.WithLabelValues(provider, "refused")
	cancelled := m.waits.WithLabelValues(provider, "cancelled")
	return func(d time.Duration, err error) {
		result := refused
		switch {
		case err == nil:
			result = granted
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			result = cancelled
		}
		result.Observe(d.Seconds())
		if next != nil {
			next(d, err)
		}
	}
}

// open returns the limiters to show, one of each provider, and forgets those
// that are closed.
func (m *Metrics) open() []*consumer.Limiter {
	m.mu.Lock()
	defer m.mu.Unlock()
	var shown []*consumer.Limiter
	for provider, limiters := range m.limiters {
		var live []*consumer.Limiter
		for _, l := range limiters {
			if l.Status().State != quota.StateClosed {
				live = append(live, l)
			}
		}
		if len(live) == 0 {
			delete(m.limiters, provider)
			m.forget(provider)
			continue
		}
		m.limiters[provider] = live
		shown = append(shown, live[0])
	}
	return shown
}

func (m *Metrics) forget(provider string) {
	m.waits.DeletePartialMatch(prometheus.Labels{"provider": provider})
}
