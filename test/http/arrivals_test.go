//go:build e2e

package http

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// timed is a Transport's base. It counts, by the second in which they arrived, the
// calls that took no longer than the margin: of those the documents promise something.
type timed struct {
	base    http.RoundTripper
	margin  time.Duration
	mu      sync.Mutex
	seconds map[string]int
	late    int
}

func (r *timed) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := r.base.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(sent) > r.margin {
		r.late++
	} else {
		r.seconds[response.Header.Get("Arrived")]++
	}
	return response, nil
}

// stall holds up every eighth caller between its permit and its call, as a machine
// that is busy does.
func stall(context.Context, time.Duration, error) {
	if rand.IntN(8) == 0 {
		<-time.After(rand.N(900 * time.Millisecond))
	}
}

// A real server counts the requests when they arrive, while every processor is busy
// with other work and callers stall: with the guard and the margin of docs/http-grpc.md its
// fullest second is within 1% of the limit.
func TestProviderThatCountsArrivals(t *testing.T) {
	const permits, transit, measured = 200, 300 * time.Millisecond, 10 * time.Second
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Arrived", strconv.FormatInt(time.Now().Unix(), 10))
	}))
	defer server.Close()
	policy := quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Timing: quota.Timing{Guard: transit}}
	limiter, err := consumer.Open(t.Context(), consumer.Fixed(policy), "p", consumer.Options{Logger: slog.New(slog.DiscardHandler), OnWait: stall})
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = permits
	calls := &timed{base: base, margin: transit, seconds: map[string]int{}}
	client := &http.Client{Transport: &httplimit.Transport{Base: calls, Limiter: limiter, MaxWait: consumer.Forever, Margin: transit}}
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
	for _, n := range calls.seconds {
		fullest, all = max(fullest, n), all+n
	}
	t.Logf("limit %d/s: %d requests in the fullest second, %d in %v, and %d that took more than %v", permits, fullest, all, measured, calls.late, transit)
	if fullest > permits*101/100 {
		t.Errorf("%d requests arrived in a second, the limit is %d", fullest, permits)
	}
	if all < permits {
		t.Errorf("only %d requests took less than %v: too few to judge", all, transit)
	}
}
