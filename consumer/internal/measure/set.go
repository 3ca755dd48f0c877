package measure

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// The histogram of waits. Its bounds reach the longest window.
const (
	WaitName = "quotient_wait_seconds"
	WaitHelp = "How long callers waited that had to wait, by result: granted, refused or cancelled."
)

// WaitBounds are the upper bounds of its buckets, in seconds; WaitResults its results.
var (
	WaitBounds  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	WaitResults = []string{"granted", "refused", "cancelled"}
)

// result returns which of WaitResults the end of a wait is.
func result(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "refused"
}

// Set is the limiters to show. Its methods are safe for concurrent use.
type Set struct {
	// Forget, if set, is called under a lock with a provider that has no open limiter
	// any more.
	Forget func(provider string)

	mu       sync.Mutex
	limiters map[string][]*consumer.Limiter // by provider, in the order of opening
	highest  map[string]map[series]float64  // of counters, by provider
}

// series is a metric and the value of its label.
type series struct {
	metric *Metric
	label  string
}

// Open opens a limiter as consumer.Open does, and adds it. Each wait goes to waited, with
// its result, and then to the options' OnWait.
func (s *Set) Open(ctx context.Context, source consumer.Source, provider string, o consumer.Options,
	waited func(ctx context.Context, d time.Duration, result string)) (*consumer.Limiter, error) {
	next := o.OnWait
	o.OnWait = func(ctx context.Context, d time.Duration, err error) {
		waited(ctx, d, result(err))
		if next != nil {
			next(ctx, d, err)
		}
	}
	limiter, err := consumer.Open(ctx, source, provider, o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if len(s.limiters[provider]) == 0 {
			s.forget(provider)
		}
		return nil, err
	}
	if s.limiters == nil {
		s.limiters, s.highest = map[string][]*consumer.Limiter{}, map[string]map[series]float64{}
	}
	others := s.openOf(provider)
	if len(others) == 0 { // the counters begin again
		s.highest[provider] = map[series]float64{}
	}
	s.limiters[provider] = append(others, limiter)
	return limiter, nil
}

// Read calls send with each value of one limiter of each provider, and forgets the limiters that
// are closed. A counter does not fall when permits are given back: it stands still until as many
// are issued again. send must not use the Set.
func (s *Set) Read(send func(m *Metric, provider, label string, v float64)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for provider := range s.limiters {
		limiters := s.openOf(provider)
		if s.limiters[provider] = limiters; len(limiters) == 0 {
			delete(s.limiters, provider)
			delete(s.highest, provider)
			s.forget(provider)
			continue
		}
		st, highest := limiters[0].Status(), s.highest[provider]
		for _, m := range All {
			m.Read(&st, func(v float64, label string) {
				if of := (series{m, label}); m.Counter() {
					v = max(v, highest[of])
					highest[of] = v
				}
				send(m, provider, label, v)
			})
		}
	}
}

// openOf returns the provider's limiters that are not closed.
func (s *Set) openOf(provider string) []*consumer.Limiter {
	return slices.DeleteFunc(s.limiters[provider], func(l *consumer.Limiter) bool { return l.Status().State == quota.StateClosed })
}

func (s *Set) forget(provider string) {
	if s.Forget != nil {
		s.Forget(provider)
	}
}
