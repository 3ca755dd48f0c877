package measure

import (
	"context"
	"errors"
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
		s.limiters = map[string][]*consumer.Limiter{}
	}
	s.limiters[provider] = append(s.limiters[provider], limiter)
	return limiter, nil
}

// Status returns the status of one limiter of each provider, and forgets those that are
// closed.
func (s *Set) Status() []consumer.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shown []consumer.Status
	for provider, limiters := range s.limiters {
		var live []*consumer.Limiter
		for _, l := range limiters {
			st := l.Status()
			if st.State == quota.StateClosed {
				continue
			}
			if live = append(live, l); len(live) == 1 {
				shown = append(shown, st)
			}
		}
		s.limiters[provider] = live
		if len(live) == 0 {
			delete(s.limiters, provider)
			s.forget(provider)
		}
	}
	return shown
}

func (s *Set) forget(provider string) {
	if s.Forget != nil {
		s.Forget(provider)
	}
}
