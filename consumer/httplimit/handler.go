package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
	"github.com/quotient-limiter/quotient/internal/ratefields"
)

// RefuseFunc answers a refused request with the status that the middleware proposes.
// Retry-After and the fields of the limits are set. err is the reason.
type RefuseFunc func(w http.ResponseWriter, r *http.Request, status int, err error)

// refusal is a request's refusal, before it is answered.
type refusal struct {
	status int
	retry  time.Duration // if the limiter knows it
	err    error
	uses   []consumer.LimitUse
}

// Options of Handler. The zero value is ready to use.
type Options struct {
	// MaxWait bounds the wait of a request for its permit, besides its context. 0
	// does not wait; consumer.Forever waits until the client gives up.
	MaxWait time.Duration
	// Cost, if set, returns the number of permits of a request. With 0 or less it
	// passes without one.
	Cost func(*http.Request) int64
	// Name begins the names of the limits in the fields RateLimit-Policy and
	// RateLimit, which the window's length ends; default "default". Printable ASCII.
	Name string
	// Refuse, if set, answers refused requests; default a problem document
	// (RFC 9457).
	Refuse RefuseFunc
}

// Handler returns middleware that takes a permit of the limiter for every request.
// All servers that opened the provider share its limit, and each admits its share.
// The field RateLimit has the rest of the share, RateLimit-Policy the whole limit.
// It works best behind a balancer that spreads requests evenly.
//
// A refused request is answered with 429. It is 503 while the limiter admits no
// request at all (no policy, closed, stale under the rule stop). Both carry
// Retry-After. An error names an option that can never work.
func Handler(limiter *consumer.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	if limiter == nil {
		return nil, errors.New("httplimit: Handler: the limiter is nil: open one with consumer.Open")
	}
	o.Name = cmp.Or(o.Name, "default")
	return middleware(o, func(r *http.Request, cost int64) refusal {
		f := refusal{err: limiter.AcquireN(r.Context(), cost, o.MaxWait), uses: limiter.Status().Limits}
		if f.err != nil {
			f.classify()
		}
		return f
	})
}

// middleware takes the permits of every request. A refusal without an error admits it.
func middleware(o Options, take func(r *http.Request, cost int64) refusal) (func(http.Handler) http.Handler, error) {
	name, err := ratefields.NewName(o.Name)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := admit.Cost(o.Cost, r)
			if cost <= 0 {
				next.ServeHTTP(w, r)
				return
			}
			f, now := take(r, cost), time.Now()
			name.Add(w.Header(), f.uses, now)
			if f.err == nil {
				next.ServeHTTP(w, r)
				return
			}
			p := ratefields.Refuse(w.Header(), f.status, o.Name, f.uses, cost, f.retry, now)
			if o.Refuse != nil {
				o.Refuse(w, r, f.status, f.err)
				return
			}
			ratefields.Write(w, p)
		})
	}, nil
}

// classify sets the status and the time to retry. If the cause is not a spent share,
// nothing is left of any limit.
func (f *refusal) classify() {
	limited, _ := errors.AsType[consumer.LimitError](f.err)
	f.retry, _ = admit.RetryAfter(f.err)
	f.status = http.StatusServiceUnavailable
	if admit.Exhausted(f.err) {
		f.status = http.StatusTooManyRequests
	}
	spent := limited.Reason == consumer.ReasonSpent || errors.Is(f.err, consumer.ErrTooLarge) || errors.Is(f.err, consumer.ErrQueueFull)
	if spent || errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) {
		return
	}
	for i := range f.uses {
		f.uses[i].Left = 0
	}
}
