package live_test

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/coordinator"
)

// counting is a provider that takes so many calls a day, and says how many are left.
type counting struct {
	limit int64
	calls atomic.Int64
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	y, m, d := time.Now().In(zone()).Date()
	midnight := time.Date(y, m, d+1, 0, 0, 0, 0, zone())
	left := max(0, c.limit-c.calls.Add(1))
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r, Header: http.Header{
		"X-Ratelimit-Remaining": {strconv.FormatInt(left, 10)}, "X-Ratelimit-Reset": {strconv.FormatInt(midnight.Unix(), 10)},
	}}, nil
}

// Others have used most of a day's limit, as only the provider knows. The fleet uses the
// rest, and not more than that by what several instances have in hand.
func TestABudgetFollowsTheProvidersCount(t *testing.T) {
	t.Parallel()
	g := newGroup(t, inDays(t, "1/200ms,1000/d"))
	p := &counting{limit: 1000}
	p.calls.Store(920)
	for range 2 {
		session := g.session(g.client, coordinator.Options{Prefix: g.prefix, TTL: g.ttl, Logger: quiet})
		t.Cleanup(func() { _ = session.Close() })
		l, err := consumer.Open(t.Context(), session, provider, consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: l, MaxWait: consumer.Forever, Learn: true}}
		g.load.Go(func() {
			for g.ctx.Err() == nil {
				if r, err := http.NewRequestWithContext(g.ctx, http.MethodGet, "http://api.example/", nil); err == nil {
					if response, err := client.Do(r); err == nil {
						_ = response.Body.Close()
					}
				}
			}
		})
	}
	g.await("the rest is used", func() bool { return p.calls.Load() >= p.limit })
	g.await("nothing counts as left", func() bool { total := g.budgetTotal(g.client); return total.Out >= total.Limit })
	g.spent(0) // by a newcomer
	if n := p.calls.Load(); n > p.limit+10 {
		t.Errorf("%d calls of %d", n, p.limit)
	}
	if total := g.budgetTotal(g.client); total.Out > total.Limit+10 {
		t.Errorf("%d of %d count as handed out", total.Out, total.Limit)
	}
}
