package live_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/internal/test/await"
	"github.com/quotient-limiter/quotient/quota"
)

// states answers each request with fields that state a limit.
type states string

func (s states) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Ratelimit-Policy": {string(s)}}, Body: http.NoBody, Request: r}, nil
}

// Operators see what the provider states to one instance. The total stays, under an
// adaptive policy too.
func TestAStatedLimitIsReported(t *testing.T) {
	t.Parallel()
	policy := exact(t, "1000/s", 1200*ms)
	policy.Adaptive = quota.Adaptive{Floor: 20}
	g := newGroup(t, policy, time.Second)
	var all []*consumer.Limiter
	for range 2 {
		session, err := coordinator.Join(t.Context(), g.client, coordinator.Options{Prefix: g.prefix, TTL: g.ttl, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		l, err := consumer.Open(t.Context(), session, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	transport := &httplimit.Transport{Base: states(`"a";q=600;w=1, "b";q=90000;w=60`), Limiter: all[1], MaxWait: consumer.Forever, Learn: true}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	await.Until(t, "it is reported", func() bool {
		f, err := g.admin.Fleet(t.Context(), provider, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Instances {
			if i.Report != nil && i.Report.Learned == "600/s" {
				return true
			}
		}
		return false
	})
	for _, l := range all {
		if u := l.Status().Shortest(); u.Pace != 1000 {
			t.Errorf("the total is %d", u.Pace)
		}
	}
}
