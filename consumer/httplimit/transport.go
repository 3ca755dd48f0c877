package httplimit

import (
	"errors"
	"net/http"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/pushback"
)

// Transport is an http.RoundTripper that takes a permit for every request, one
// for each redirect and each retry too. It is safe for concurrent use; set its
// fields before the first request, and do not copy it after.
//
// A request without a permit is not sent. http.Client then returns a *url.Error
// that unwraps to the limiter's error: consumer.ErrLimited where the share is
// spent, which retrying code should not take for a broken connection, or an
// error of the request's context.
//
// Place it inside whatever retries, so that each attempt takes a permit. The
// permit is taken before a connection is looked for: dialling a new one can
// outlast the permit's window, which connections that are kept alive do not.
type Transport struct {
	// Base makes the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the one for all requests.
	Limiter *consumer.Limiter
	// Pick, if set, chooses the limiter of a request, as by its host; nil lets
	// the request pass without a permit.
	Pick func(*http.Request) *consumer.Limiter
	// Cost, if set, tells how many permits a request takes; 0 or less lets it
	// pass without.
	Cost func(*http.Request) int64
	// MaxWait is how long a request may wait for its permit, besides the deadline
	// of its context, which http.Client's Timeout sets too. As everywhere, 0 does
	// not wait, and consumer.Forever waits as long as the context allows.
	MaxWait time.Duration
	// MaxPause bounds how long a provider's answer, 429 or 503 with Retry-After,
	// may pause the limiter; 0 means 5 minutes, less than 0 that such answers are
	// not heeded. Meanwhile requests are refused, or wait, as by a spent share.
	MaxPause time.Duration

	pauses pushback.Pauses[*consumer.Limiter]
}

// errNoLimiter is what an empty Transport returns: to let everything pass would
// hide the mistake.
var errNoLimiter = errors.New("httplimit: the Transport has no limiter: set Limiter or Pick")

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	limiter, err := t.admit(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper always closes it
		}
		return nil, err
	}
	response, err := t.base().RoundTrip(r)
	if err == nil && limiter != nil {
		switch response.StatusCode {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			now := time.Now()
			t.pauses.Ask(limiter, now, retryAfter(response.Header, now), t.MaxPause)
		}
	}
	return response, err
}

// admit takes the request's permits. It returns their limiter, nil if none are
// needed.
func (t *Transport) admit(r *http.Request) (*consumer.Limiter, error) {
	limiter := t.Limiter
	if t.Pick != nil {
		limiter = t.Pick(r)
	} else if limiter == nil {
		return nil, errNoLimiter
	}
	cost := int64(1)
	if t.Cost != nil {
		cost = t.Cost(r)
	}
	if limiter == nil || cost <= 0 {
		return nil, nil
	}
	return limiter, limiter.AcquireN(r.Context(), cost, t.MaxWait)
}

func (t *Transport) base() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}

// CloseIdleConnections closes those of Base, for http.Client's method of that
// name.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
