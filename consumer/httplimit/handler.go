package httplimit

import (
	"cmp"
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

// Options of Handler. The zero value is ready to use.
type Options struct {
	// MaxWait bounds the wait of a request for its permit, besides its context. 0
	// does not wait; consumer.Forever waits until the client gives up.
	MaxWait time.Duration
	// Cost, if set, returns the number of permits of a request. With 0 or less it
	// passes without one.
	Cost func(*http.Request) int64
	// Class, if set, returns the class of a request; default consumer.Default. A client
	// that can choose its class comes first: do not take it from a field that clients set.
	Class func(*http.Request) consumer.Class
	// Label, if set, returns the label of a request, such as its route's pattern, and "" if it
	// has none: see consumer.Limiter.Label.
	Label func(*http.Request) string
	// Key, if set, returns the key of a request, such as its account, and "" if it has none:
	// see consumer.Limiter.Key.
	Key func(*http.Request) string
	// Name begins the names of the limits in the fields RateLimit-Policy and
	// RateLimit, which the window's length ends; default "default". Printable ASCII.
	// Between the two stands "key" if it is a limit of the request's key.
	Name string
	// Refuse, if set, answers refused requests; default a problem document
	// (RFC 9457).
	Refuse RefuseFunc
}

// Handler returns middleware that takes a permit of the limiter for every request.
// All servers that opened the provider share its limit. Each admits its share, and more
// where others lend: see quota.Division. The field RateLimit has the rest of the share,
// RateLimit-Policy the whole limit; a refusal has them only if a limit refused.
//
// Under a limit in flight a request counts until the next handler has returned. Its context ends when
// its permit does: see consumer.Permit.Until.
//
// A refused request is answered with 429. It is 503 while the limiter admits no
// request at all (no policy, closed, stale under the rule stop), or has too many keys in
// use. Both carry Retry-After, a second if nobody knows how long it takes. A key or label with a
// name that none can have is answered with 400.
// An error names an option that can never work.
func Handler(limiter *consumer.Limiter, o Options) (func(http.Handler) http.Handler, error) {
	if limiter == nil {
		return nil, errors.New("httplimit: Handler: the limiter is nil: open one with consumer.Open")
	}
	o.Name = cmp.Or(o.Name, "default")
	name, err := ratefields.NewName(o.Name)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	key := func(*http.Request) string { return "" }
	if o.Key != nil {
		key = o.Key
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			cost := admit.Cost(o.Cost, r)
			if cost <= 0 {
				next.ServeHTTP(w, r)
				return
			}
			of := limiter
			if o.Class != nil {
				of = limiter.Class(o.Class(r))
			}
			var err error
			if o.Label != nil {
				of, err = admit.Label(of, o.Label(r))
			}
			var from consumer.Taker
			if err == nil {
				from, err = admit.From(of, key(r))
			}
			if err != nil {
				o.refuseName(w, r, err)
				return
			}
			permit, err := from.Take(r.Context(), cost, o.MaxWait)
			uses, now := ratefields.UsesOf(limiter, from), time.Now()
			if err == nil {
				name.Add(w.Header(), uses, now)
				ctx, done := permit.Begin(r.Context())
				defer done()
				next.ServeHTTP(w, within(ctx, r))
				return
			}
			status := http.StatusServiceUnavailable
			if admit.Exhausted(err) {
				status = http.StatusTooManyRequests
			}
			p := name.Refuse(w.Header(), status, uses, cost, err, now)
			if o.Refuse != nil {
				o.Refuse(w, r, status, err)
				return
			}
			ratefields.Write(w, p)
		})
	}, nil
}

// refuseName answers a request whose key or label has a name that none can have.
func (o *Options) refuseName(w http.ResponseWriter, r *http.Request, err error) {
	if o.Refuse != nil {
		o.Refuse(w, r, http.StatusBadRequest, err)
		return
	}
	ratefields.Write(w, ratefields.Problem{Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Detail: ratefields.Detail(err)})
}
