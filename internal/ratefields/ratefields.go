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

// Name is what the names of the limits in the fields begin with. The zero Name writes no fields.
type Name struct {
	plain string
	begun string // as an sf-string without its closing quote; empty if no field can hold it
}

// NewName returns an error for a name that no field can hold. The Name then writes no fields.
func NewName(name string) (Name, error) {
	text, err := httpsfv.Marshal(httpsfv.NewItem(name))
	if err != nil {
		return Name{plain: name}, fmt.Errorf("Name is %q, which no header field can hold (%w): use printable ASCII", name, err)
	}
	return Name{name, strings.TrimSuffix(text, `"`)}, nil
}

// Use is the use of a limit, of a provider or of one of its keys. Left of a long limit is also what no instance has
// taken: calls can have that.
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
	for i := range all {
		all[i].Left = max(all[i].Left, all[i].Remaining)
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
	if n.begun == "" || len(uses) == 0 {
		return
	}
	var policies, limits []byte
	for i, u := range uses {
		if i > 0 {
			policies, limits = append(policies, ", "...), append(limits, ", "...)
		}
		name := n.begun + u.name() + `"`
		policies = strconv.AppendInt(append(append(policies, name...), ";q="...), u.Limit.Permits, 10)
		switch {
		case u.Limit.InFlight:
			policies = append(policies, `;qu="concurrent-requests"`...)
		case u.Limit.Window%time.Second == 0:
			policies = strconv.AppendInt(append(policies, ";w="...), int64(u.Limit.Window/time.Second), 10)
		}
		limits = strconv.AppendInt(append(append(limits, name...), ";r="...), u.Left, 10)
		if !u.Limit.ByParts() && u.Remaining >= 0 {
			limits = strconv.AppendInt(append(limits, ";t="...), Seconds(rest(u, now)), 10)
		}
	}
	h.Add(PolicyField, string(policies))
	h.Add(LimitField, string(limits))
}

// rest returns the time until there are more permits: the window ends, or one comes back; 0 if that is not known, as of a
// limit that counts by parts of time, and of a long one of which etcd has told nothing yet.
func rest(u Use, now time.Time) time.Duration {
	if u.Limit.ByParts() || u.Remaining < 0 {
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

// Again is how long a client is to wait if nobody knows how long it takes.
const Again = time.Second

// RetryAfter returns how long a client that is refused is to wait: until there may be permits or, if the limiter does
// not know when that is, Again.
func RetryAfter(err error, now time.Time) time.Duration {
	limited, ok := errors.AsType[consumer.LimitError](err)
	if !ok || limited.RetryAt.IsZero() {
		return Again
	}
	return max(0, limited.RetryAt.Sub(now))
}

// Later returns the problem of a request that is refused with the status and may come again after a time, and sets
// Retry-After.
func Later(h http.Header, status int, retry time.Duration) Problem {
	h.Set("Retry-After", strconv.FormatInt(Seconds(retry), 10))
	p := Problem{Type: problemTypes + "quota-exceeded", Title: cause.Of(string(consumer.ReasonSpent)).Title, Status: status, RetryAfter: retry.Seconds()}
	if status != http.StatusTooManyRequests {
		p.reduce("Requests cannot be admitted at present")
	}
	return p
}

// Refuse is Later for a request that err refused, and adds the limits of which uses are, if one of them decided. cost
// is the permits of the request.
//
// Retry-After is then not earlier than t of a limit that is spent, as the draft asks: the end of
// its window or, under other shapes than fixed windows, when the next permit comes back. Where a state decided, such as
// an operator's pause, what is left of limits and when there is more of them says nothing of when that is over.
func (n Name) Refuse(h http.Header, status int, uses []Use, cost int64, err error, now time.Time) Problem {
	of, retry := CauseOf(err), RetryAfter(err, now)
	var violated []string
	if of.Limit {
		n.Add(h, uses, now)
		for _, u := range uses {
			if u.Left < cost {
				violated, retry = append(violated, n.plain+u.name()), max(retry, rest(u, now))
			}
		}
	}
	p := Later(h, status, retry)
	if of.Reason != "" && (of.Title != p.Title || !of.Limit) {
		p.reduce(of.Title)
	} else if status == http.StatusTooManyRequests {
		p.Violated = violated
	}
	return p
}

// reduce makes it the problem of a refusal whose cause is no spent limit.
func (p *Problem) reduce(title string) {
	p.Type, p.Title = problemTypes+"temporary-reduced-capacity", title
}

// CauseOf returns the cause of a limiter's error; one without a reason if it is another error. No limit decided where
// the error has a cause of its own, such as that etcd does not answer.
func CauseOf(err error) cause.Cause {
	if limited, ok := errors.AsType[consumer.LimitError](err); ok {
		of := cause.Of(string(limited.Reason))
		of.Limit = of.Limit && limited.Cause == nil
		return of
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
