// Package ratefields writes limits into HTTP responses: the fields RateLimit and
// RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, and the problem documents
// of refusals (RFC 9457).
package ratefields

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/protocol/cause"
)

// The names of the fields. Both are lists (RFC 9651), so that middleware around other
// middleware adds its own.
const (
	PolicyField = "RateLimit-Policy"
	LimitField  = "RateLimit"
)

// Name is the prefix of the policies' names in a field: an sf-string without its closing
// quote.
type Name string

// NewName returns an error for a name that no field can hold.
func NewName(name string) (Name, error) {
	text, err := httpsfv.Marshal(httpsfv.NewItem(name))
	if err != nil {
		return "", fmt.Errorf("Name is %q, which no header field can hold (%w): use printable ASCII", name, err)
	}
	return Name(strings.TrimSuffix(text, `"`)), nil
}

// Use is the use of a limit, of a provider or of one of its keys.
type Use struct {
	consumer.LimitUse
	OfKey bool
}

// UsesOf returns the uses of all limits of a call: its limiter's, and those of its key if from
// is one.
func UsesOf(limiter *consumer.Limiter, from consumer.Taker) (all []Use) {
	for _, u := range limiter.Status().Limits {
		all = append(all, Use{u, false})
	}
	if key, ok := from.(consumer.Key); ok {
		for _, u := range key.Limits() {
			all = append(all, Use{u, true})
		}
	}
	return all
}

// name ends the limit's name. The key's own name does not stand there: it may be a secret.
func (u *Use) name() string {
	if u.Limit.InFlight {
		return "-inflight"
	}
	if u.OfKey {
		return "-key-" + protocol.WindowName(u.Limit)
	}
	return "-" + protocol.WindowName(u.Limit)
}

// Add adds the limits, and the permits left of them at the instant now. A policy cannot
// express a window that is no whole number of seconds, so it is left out. The rest of a
// window is rounded up. A limit in flight has another unit, and no window that ends, nor has a long one that slides.
func (n Name) Add(h http.Header, uses []Use, now time.Time) {
	if len(uses) == 0 {
		return
	}
	var policies, limits []byte
	for i, u := range uses {
		if i > 0 {
			policies, limits = append(policies, ", "...), append(limits, ", "...)
		}
		name := string(n) + u.name() + `"`
		policies = strconv.AppendInt(append(append(policies, name...), ";q="...), u.Limit.Permits, 10)
		switch {
		case u.Limit.InFlight:
			policies = append(policies, `;qu="concurrent-requests"`...)
		case u.Limit.Window%time.Second == 0:
			policies = strconv.AppendInt(append(policies, ";w="...), int64(u.Limit.Window/time.Second), 10)
		}
		limits = strconv.AppendInt(append(append(limits, name...), ";r="...), u.Left, 10)
		if !u.Limit.ByParts() {
			limits = strconv.AppendInt(append(limits, ";t="...), Seconds(rest(u, now)), 10)
		}
	}
	h.Add(PolicyField, string(policies))
	h.Add(LimitField, string(limits))
}

// rest returns the time until there are more permits: the window ends, or one comes back; 0 if that is not known, as of a
// limit that counts by parts of time.
func rest(u Use, now time.Time) time.Duration {
	if u.Limit.ByParts() {
		return 0
	}
	return max(0, min(u.End.Sub(now), u.Limit.Window))
}

// Seconds returns d in whole seconds, rounded up, and at least 1: a client told 0 would
// come back at once, and one told too little in vain.
func Seconds(d time.Duration) int64 { return max(1, int64(math.Ceil(d.Seconds()))) }

// Problem is the body of a refusal (RFC 9457).
type Problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
	Detail   string   `json:"detail,omitempty"`
	// RetryAfter is the field Retry-After, exact and in seconds.
	RetryAfter float64 `json:"retry_after,omitempty"`
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// Refuse returns the problem of a request that was refused with the status, and sets
// Retry-After. name is that of the limits, uses their rest, and cost the permits of the
// request. retry is the time until there may be enough, if it is known.
//
// Retry-After is not earlier than t of a limit that is spent, as the draft asks: the end of
// its window or, under other shapes than fixed windows, when the next permit comes back;
// and not before there are as many as the request costs.
func Refuse(h http.Header, status int, name string, uses []Use, cost int64, retry time.Duration, now time.Time) Problem {
	p := Problem{Type: problemTypes + "quota-exceeded", Title: cause.Of(string(consumer.ReasonSpent)).Title, Status: status}
	for _, u := range uses {
		if u.Left < cost {
			p.Violated = append(p.Violated, name+u.name())
			retry = max(retry, rest(u, now))
		}
	}
	if status != http.StatusTooManyRequests {
		p.reduce("Requests cannot be admitted at present")
	}
	h.Set("Retry-After", strconv.FormatInt(Seconds(retry), 10))
	return p
}

// reduce makes it the problem of a refusal whose cause is no spent limit.
func (p *Problem) reduce(title string) {
	p.Type, p.Title, p.Violated = problemTypes+"temporary-reduced-capacity", title, nil
}

// Name gives the problem the title of what decided a refusal.
func (p *Problem) Name(err error) {
	if of := CauseOf(err); of.Title != p.Title && of.Reason != "" {
		p.reduce(of.Title)
	}
}

// CauseOf returns the cause of a limiter's error; one without a reason if it is another error.
func CauseOf(err error) cause.Cause {
	if limited, ok := errors.AsType[consumer.LimitError](err); ok {
		return cause.Of(string(limited.Reason))
	}
	for _, c := range [...]struct {
		kind   error
		reason consumer.Reason
	}{
		{consumer.ErrTooLarge, consumer.ReasonTooLarge},
		{consumer.ErrQueueFull, consumer.ReasonQueueFull},
		{consumer.ErrClosed, consumer.ReasonClosed},
		{consumer.ErrNoPolicy, consumer.ReasonNoPolicy},
		{consumer.ErrStale, consumer.ReasonStale},
	} {
		if errors.Is(err, c.kind) {
			return cause.Of(string(c.reason))
		}
	}
	return cause.Cause{}
}

// Explain names what decided a refusal, and tells it in detail.
func (p *Problem) Explain(err error) {
	p.Name(err)
	p.Detail = Detail(err)
}

// Detail returns an error's text for a client, which knows of no package.
func Detail(err error) string { return strings.TrimPrefix(err.Error(), "consumer: ") }

// Write answers with a problem.
func Write(w http.ResponseWriter, p Problem) {
	body, _ := json.Marshal(p) // strings and numbers: there is nothing to fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}
