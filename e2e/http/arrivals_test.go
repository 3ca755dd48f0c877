//go:build e2e

package http

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// A real server counts the requests when they arrive, while every processor is busy
// with other work: with the guard and the margin of docs/http.md its fullest second
// is within 1% of the limit.
func TestProviderThatCountsArrivals(t *testing.T) {
	const permits, transit, measured = 200, 300 * time.Millisecond, 10 * time.Second
	var mu sync.Mutex
	seconds := map[int64]int{}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seconds[time.Now().Unix()]++
	}))
	defer server.Close()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Guard: transit}
	limiter, err := consumer.Open(t.Context(), consumer.Fixed(policy), "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = permits
	client := &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: limiter, MaxWait: consumer.Forever, Margin: transit}}
	defer client.CloseIdleConnections()

	end := time.Now().Add(measured)
	var running sync.WaitGroup
	for range runtime.NumCPU() {
		running.Go(func() {
			for time.Now().Before(end) {
			}
		})
	}
	for range permits {
		running.Go(func() {
			for time.Now().Before(end) {
				response, err := client.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	running.Wait()
	fullest, all := 0, 0
	for _, n := range seconds {
		fullest, all = max(fullest, n), all+n
	}
	t.Logf("limit %d/s: %d requests in the fullest second, %d in %v", permits, fullest, all, measured)
	if fullest > permits*101/100 {
		t.Errorf("%d requests arrived in a second, the limit is %d", fullest, permits)
	}
}
