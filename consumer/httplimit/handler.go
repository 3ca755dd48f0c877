package httplimit

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
)

// Options of Handler. The zero value is ready to use.
type Options struct {
	// MaxWait is how long a request may wait for its permit, besides its context;
	// 0 refuses at once, consumer.Forever waits as long as the client does.
	MaxWait time.Duration
	// Cost, if set, tells how many permits a request takes; 0 or less lets it
	// pass without.
	Cost func(*http.Request) int64
	// Name begins the names of the limits in the fields RateLimit-Policy and
	// RateLimit, which the window's length ends; default "default". Printable ASCII.
	Name string
	// Refuse, if set, answers those who are refused; default a problem document
	// (RFC 9457).
	Refuse RefuseFunc
}

// Handler returns middleware that takes a permit of the limiter for every
// request. All servers that opened the provider share its limit; each admits no
// more than its share, which is what the field RateLimit tells is left, while
// RateLimit-Policy tells the whole limit. It works best behind a balancer that
// spreads requests evenly.
//
// Who is refused gets 429. While the limiter cannot admit anybody for a reason
// that is not the client's (no policy, closed, stale under the rule stop) it is
// 503. Both carry Retry-After. An error names an option that can never work.
func Handler(limiter *consumer.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	if limiter == nil {
		return nil, errors.New("httplimit: Handler: the limiter is nil: open one with consumer.Open")
	}
	if o.MaxWait < consumer.Forever {
		return nil, errors.New("httplimit: Handler: MaxWait is negative: use 0 to not wait, consumer.Forever (-1) to wait as long as the client does")
	}
	if o.Name == "" {
		o.Name = "default"
	}
	name, err := newPolicyName(o.Name)
	if err != nil {
		return nil, err
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := costOf(o.Cost, r)
			if cost <= 0 {
				next.ServeHTTP(w, r)
				return
			}
			err := limiter.AcquireN(r.Context(), cost, o.MaxWait)
			f := refusal{err: err, name: o.Name, cost: cost, respond: o.Refuse}
			f.uses = uses(limiter, time.Now())
			f.judge(limiter, time.Now())
			name.addFields(w.Header(), f.uses)
			if err != nil {
				f.answer(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// judge finds the status for the error, when to try again, and, where the reason
// is not that a window's share is spent, that nothing is left of any.
func (f *refusal) judge(limiter *consumer.Limiter, now time.Time) {
	if f.err == nil {
		return
	}
	limited, ok := errors.AsType[*consumer.LimitError](f.err)
	switch {
	case ok:
		f.status = http.StatusTooManyRequests
		if !limited.RetryAt.IsZero() {
			f.retry = limited.RetryAt.Sub(now)
		}
		if limited.Reason == consumer.ReasonSpent {
			// RetryAt is for one permit; the windows' ends bound both otherwise.
			if d := limiter.DelayN(f.cost); d < math.MaxInt64 {
				f.retry = max(f.retry, d)
			}
			return
		}
	case errors.Is(f.err, consumer.ErrTooLarge), errors.Is(f.err, consumer.ErrQueueFull):
		f.status = http.StatusTooManyRequests
		return
	case errors.Is(f.err, context.Canceled), errors.Is(f.err, context.DeadlineExceeded):
		f.status = http.StatusServiceUnavailable
		return
	default:
		f.status = http.StatusServiceUnavailable
	}
	for i := range f.uses {
		f.uses[i].left = 0
	}
}

// uses returns what the limiter's limits have left.
func uses(limiter *consumer.Limiter, now time.Time) []use {
	limits := limiter.Limits()
	all := make([]use, len(limits))
	for i, l := range limits {
		all[i] = use{l.Limit, l.Left, max(0, l.End.Sub(now))}
	}
	return all
}

func costOf(cost func(*http.Request) int64, r *http.Request) int64 {
	if cost == nil {
		return 1
	}
	return cost(r)
}
