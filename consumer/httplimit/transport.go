package httplimit

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/internal/admit"
)

// Transport is an http.RoundTripper that takes a permit for every request, one
// for each redirect and each retry too. It is safe for concurrent use; set its
// fields before the first request, and do not copy it after.
//
// A request without a permit is not sent. http.Client then returns a *url.Error that
// unwraps to the limiter's error: consumer.ErrLimited if the share is spent, or an error
// of the request's context. Code that retries must not treat it as a broken connection.
//
// Under a limit in flight a request counts until its response's Body is closed, or until it has failed. Its
// context ends when its permit does: see consumer.Permit.Until.
//
// Put the Transport inside the code that retries, so that each attempt takes a
// permit. The permit is taken before the connection is chosen. Dialling a new one can
// outlast the permit's window, so keep connections alive.
type Transport struct {
	// Base makes the requests; nil means http.DefaultTransport.
	Base http.RoundTripper
	// Limiter is the one for all requests.
	Limiter *consumer.Limiter
	// Pick, if set, chooses the limiter of a request, for example by its host, or its class
	// and label by consumer.Limiter.Class and Label. With nil the request passes without a permit.
	Pick func(*http.Request) *consumer.Limiter
	// Key, if set, returns the key of a request, such as its account, and "" if it has none:
	// see consumer.Limiter.Key. A pause after an answer 429 is of all keys. If the provider
	// answers 429 to single accounts, set MaxPause to -1.
	Key func(*http.Request) string
	// Cost, if set, returns the number of permits of a request. With 0 or less it
	// passes without one.
	Cost func(*http.Request) int64
	// MaxWait bounds the wait of a request for its permit, besides the deadline of
	// its context, which http.Client's Timeout sets too. 0 does not wait;
	// consumer.Forever waits as long as the context allows.
	MaxWait time.Duration
	// MaxPause bounds the pause of the limiter after an answer that asks for one, besides the
	// policy's BackoffMax; 0 adds no bound. A negative value ignores such answers. They are 429,
	// 503 and 403 with Retry-After, and 403 with X-RateLimit-Remaining: 0, as GitHub answers. The
	// pause lasts as long as Retry-After says, or until X-RateLimit-Reset where nothing remains;
	// without either as long as the policy says. During the pause requests are refused, or
	// wait, as if the share were spent.
	MaxPause time.Duration
	// Refused, if set, decides in place of the rule above whether a response asks for a pause, and
	// for how long; 0 stands for as long as the policy says. MaxPause bounds it.
	Refused func(*http.Response) (pause time.Duration, refused bool)
	// Settle, if set, returns what a request has cost, as the header of its response says, such as
	// X-Request-Cost, or 0 for a 304 that the provider does not count. With ok false the permits
	// stand as they were taken, or as the function Settle says later. See consumer.Permit.Settle.
	Settle func(*http.Response) (cost int64, ok bool)
	// Stated has the fleet heed what responses say is left of a long limit, one of more than a
	// minute, until the provider counts anew: see consumer.Limiter.Stated. They are read from
	// X-RateLimit-Limit, -Remaining (or -Used) and -Reset, as GitHub sends them, and from the fields
	// RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers. With Key, it is the
	// key's limit. Set it where others use the same account, or where the provider's windows do not
	// begin when the limiter's do.
	Stated bool
	// Margin is the time that a request needs to reach the provider. If the window of
	// its permits ends sooner, at the moment of sending, the permits are released and
	// taken again. The second wait counts toward MaxWait. Default 0: no check.
	Margin time.Duration
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	admitted, err := admit.Options[*http.Request]{
		Package: "httplimit", Limiter: t.Limiter, Pick: t.Pick, Key: t.Key, Cost: t.Cost, MaxWait: t.MaxWait, Margin: t.Margin,
	}.Take(r.Context(), r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper always closes it
		}
		return nil, err
	}
	ctx, done := admitted.Permit.Begin(r.Context())
	response, err := t.base().RoundTrip(within(ctx, r))
	if err != nil || admitted.Limiter == nil {
		done()
		return response, err // of a request that failed nobody knows whether it was counted
	}
	if after, asked := t.pause(response); asked {
		admit.Throttled(admitted.Limiter, after, t.MaxPause, strconv.Itoa(response.StatusCode)+" from "+r.URL.Host)
	}
	if t.Stated {
		heed(admitted.From, response.Header, time.Now())
	}
	t.wrap(response, admitted.Permit, done)
	return response, nil
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// CloseIdleConnections closes those of Base, for http.Client's method of that
// name.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// pause is Refused, or the rule that stands for it.
func (t *Transport) pause(response *http.Response) (after time.Duration, asked bool) {
	if t.Refused != nil {
		return t.Refused(response)
	}
	return pause(response, time.Now())
}

// pause reports whether a response asks its client to make a pause, and for how long; 0 if it does
// not say.
func pause(response *http.Response, now time.Time) (after time.Duration, asked bool) {
	h := response.Header
	after = retryAfter(h, now)
	spent := h.Get("X-RateLimit-Remaining") == "0"
	if after == 0 && spent {
		after = untilReset(h, now)
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		return after, true
	case http.StatusServiceUnavailable:
		return after, after > 0
	case http.StatusForbidden: // of GitHub; without these fields it is about rights
		return after, spent || after > 0
	}
	return 0, false
}

// retryAfter returns how long a response asks its client to wait, by its field Retry-After: a date,
// or seconds. RFC 9110, section 10.2.3, has whole ones only; decimals, which Shopify and others
// send, are rounded up to milliseconds. A date is taken relative to the response's own Date where
// it has one, since the server wrote both by the same clock. It returns 0 where nothing is asked
// for, or nothing that can be read.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if whole, decimals, _ := strings.Cut(text, "."); whole != "" && digits(whole) && digits(decimals) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n >= math.MaxInt64/float64(time.Second) {
			return math.MaxInt64 // longer than any cap
		}
		seconds := math.Floor(n)
		return time.Duration(seconds)*time.Second + time.Duration(math.Ceil(1000*(n-seconds)))*time.Millisecond
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, until.Sub(dated(h, now)))
}

// digits reports whether a text has nothing but digits.
func digits(text string) bool { return strings.Trim(text, "0123456789") == "" }

// X-RateLimit-Reset has an instant from fromUnix on, in place of a number of seconds, which would be
// above three years; from fromMillis on the instant is in milliseconds.
const (
	fromUnix   = 1e8
	fromMillis = fromUnix * 100
)

// untilReset returns the time until the instant that X-RateLimit-Reset names, as a number of
// seconds, or as a Unix time in seconds or milliseconds; 0 if it cannot be read.
func untilReset(h http.Header, now time.Time) time.Duration {
	n, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	switch {
	case err != nil || n < 0:
		return 0
	case n >= fromMillis:
		return max(0, time.UnixMilli(n).Sub(dated(h, now)))
	case n >= fromUnix:
		return max(0, time.Unix(n, 0).Sub(dated(h, now)))
	}
	return time.Duration(n) * time.Second
}

// dated returns when a response was made by its server's clock, now if it does not say.
func dated(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}
