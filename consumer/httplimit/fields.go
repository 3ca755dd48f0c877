package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/quotient-limiter/quotient/consumer/internal/admit"
	"github.com/quotient-limiter/quotient/quota"
)

// The response fields of draft-ietf-httpapi-ratelimit-headers-11. Both are lists
// (RFC 9651), so that middleware around other middleware adds its own.
const (
	policyField = "RateLimit-Policy"
	limitField  = "RateLimit"
)

// use is the rest of one limit for a client.
type use struct {
	limit quota.Limit
	left  int64
	ends  time.Duration // until there are more: the window ends, or a permit comes back
}

// policyName is the prefix of the policies' names in a field: an sf-string without
// its closing quote.
type policyName string

// newPolicyName returns an error for a name that no field can hold.
func newPolicyName(name string) (policyName, error) {
	text, err := httpsfv.Marshal(httpsfv.NewItem(name))
	if err != nil {
		return "", fmt.Errorf("httplimit: Name is %q, which no header field can hold (%w): use printable ASCII", name, err)
	}
	return policyName(strings.TrimSuffix(text, `"`)), nil
}

// addFields adds the limits, and the permits left of them. A policy cannot express
// a window that is no whole number of seconds, so it is left out. The rest of a
// window is rounded up.
func (n policyName) addFields(h http.Header, uses []use) {
	if len(uses) == 0 {
		return
	}
	var policies, limits []byte
	for i, u := range uses {
		if i > 0 {
			policies, limits = append(policies, ", "...), append(limits, ", "...)
		}
		name := string(n) + "-" + admit.WindowName(u.limit) + `"`
		policies = strconv.AppendInt(append(append(policies, name...), ";q="...), u.limit.Permits, 10)
		if u.limit.Window%time.Second == 0 {
			policies = strconv.AppendInt(append(policies, ";w="...), int64(u.limit.Window/time.Second), 10)
		}
		limits = strconv.AppendInt(append(append(limits, name...), ";r="...), u.left, 10)
		limits = strconv.AppendInt(append(limits, ";t="...), seconds(min(u.ends, u.limit.Window)), 10)
	}
	h.Add(policyField, string(policies))
	h.Add(limitField, string(limits))
}

// RefuseFunc answers a refused request with the status that the middleware proposes.
// Retry-After and the fields of the limits are set. err is the reason.
type RefuseFunc func(w http.ResponseWriter, r *http.Request, status int, err error)

// problem is the body of a refusal (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

// refusal is a request's refusal, before it is answered.
type refusal struct {
	status  int
	retry   time.Duration // if the limiter knows it
	err     error
	name    string
	uses    []use
	cost    int64
	respond RefuseFunc
}

// answer sends the refusal. Retry-After is not earlier than t of a limit that is
// spent, as the draft asks: the end of its window or, under other shapes than fixed
// windows, when the next permit comes back; and not before there are as many as the
// request costs.
func (f *refusal) answer(w http.ResponseWriter, r *http.Request) {
	var names []string // of the limits that have less left than the request costs
	longest := time.Duration(0)
	for _, u := range f.uses {
		if u.left < f.cost {
			names = append(names, f.name+"-"+admit.WindowName(u.limit))
			longest = max(longest, min(u.ends, u.limit.Window))
		}
	}
	w.Header().Set("Retry-After", strconv.FormatInt(seconds(max(f.retry, longest)), 10))
	if f.respond != nil {
		f.respond(w, r, f.status, f.err)
		return
	}
	p := problem{
		Type: problemTypes + "quota-exceeded", Title: "The quota for such requests is used up",
		Status: f.status, Violated: names,
	}
	if f.status != http.StatusTooManyRequests {
		p.Type, p.Title = problemTypes+"temporary-reduced-capacity", "Requests cannot be admitted at present"
	}
	body, _ := json.Marshal(p) // strings and numbers: there is nothing to fail
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.status)
	_, _ = w.Write(append(body, '\n'))
}
