//go:build e2e

package http

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

func limiter(t *testing.T, limits string) *consumer.Limiter {
	t.Helper()
	l, err := consumer.Open(t.Context(), consumer.Fixed(quota.Policy{Limits: parse(t, limits)}), "p",
		consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func parse(t *testing.T, limits string) []quota.Limit {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// run runs a program that is installed, and returns what it says.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("there is no %s (%v): apt-get install %s, or run .ci/run http", name, err, name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// curl sees the status, the fields and the body, and obeys Retry-After.
func TestCurl(t *testing.T) {
	var served atomic.Int64
	limit, err := httplimit.Handler(limiter(t, "1/s,100/1m"), httplimit.Options{Name: "charge"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		_, _ = fmt.Fprintln(w, "served")
	})))
	defer server.Close()

	// Two requests lie in one window, or the third does with the second.
	out := run(t, "curl", "-sSi", server.URL, server.URL, server.URL)
	for _, want := range []string{
		"HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests", "Retry-After: 1\r",
		"RateLimit-Policy: \"charge-1s\";q=1;w=1, \"charge-1m\";q=100;w=60\r",
		"Ratelimit: \"charge-1s\";r=0;t=1, \"charge-1m\";r=", "Content-Type: application/problem+json\r",
		`"violated-policies":["charge-1s"]`,
	} {
		if !strings.Contains(strings.ToLower(out), strings.ToLower(want)) {
			t.Errorf("curl does not see %q:\n%s", want, out)
		}
	}
	// With --retry, curl comes back after Retry-After, and both are served.
	before := served.Load()
	out = run(t, "curl", "-sSf", "--retry", "10", server.URL, server.URL)
	if n := served.Load() - before; n != 2 || strings.Count(out, "served") != 2 {
		t.Errorf("%d served:\n%s", n, out)
	}
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkRefused  = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

// wrkCounts runs wrk for three seconds and returns how many of its requests were
// served and how many refused.
func wrkCounts(t *testing.T, url string) (served, refused int64) {
	t.Helper()
	out := run(t, "wrk", "-t2", "-c32", "-d3s", "--latency", url)
	t.Logf("%s", out)
	number := func(r *regexp.Regexp) int64 {
		if m := r.FindStringSubmatch(out); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			return n
		}
		return 0
	}
	refused = number(wrkRefused)
	return number(wrkRequests) - refused, refused
}

// seconds counts by the windows that the limiter uses.
type seconds struct {
	mu     sync.Mutex
	counts map[int64]int64
}

func (s *seconds) count(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[int64]int64{}
	}
	s.counts[at.Unix()]++
}

// Under wrk, the handler behind the middleware never sees more of a second's
// permits than the limit, and wrk sees a 429 for everything else.
func TestServerUnderWrk(t *testing.T) {
	const most = 500
	l := limiter(t, "500/s")
	limit, err := httplimit.Handler(l, httplimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	server := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) })))
	defer server.Close()
	before := time.Now().Unix()
	ok, refused := wrkCounts(t, server.URL)
	windows := time.Now().Unix() - before + 1
	st := l.Status()
	if n := served.Load(); n > most*windows || n != st.Issued || st.OverIssued != 0 {
		t.Errorf("served %d in %d windows, issued %d, beyond %d", n, windows, st.Issued, st.OverIssued)
	}
	// wrk does not count what is on its way when it stops.
	if n := served.Load(); ok > n || n-ok > 32 || refused == 0 {
		t.Errorf("wrk saw %d served and %d refused, the server served %d", ok, refused, n)
	}
}

// A proxy whose Transport takes permits protects the provider behind it, under
// wrk, also where requests wait.
func TestTransportUnderWrk(t *testing.T) {
	const most = 200
	var provider seconds
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at, err := strconv.ParseInt(r.Header.Get("X-Window"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		provider.count(time.Unix(0, at))
	}))
	defer behind.Close()
	l := limiter(t, "200/s")
	client := &http.Client{Transport: &httplimit.Transport{Limiter: l, MaxWait: 2 * time.Second, Base: stamp{http.DefaultTransport}}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, err := http.NewRequestWithContext(r.Context(), http.MethodGet, behind.URL, nil)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := client.Do(call)
		if err != nil {
			if !errors.Is(err, consumer.ErrLimited) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = response.Body.Close()
	}))
	defer front.Close()
	ok, _ := wrkCounts(t, front.URL)
	front.Close() // what is on its way has ended
	provider.mu.Lock()
	defer provider.mu.Unlock()
	var all int64
	for second, n := range provider.counts {
		all += n
		if n > most+32 { // of 32 connections, each may have taken its permit just before the edge
			t.Errorf("second %d: %d calls left", second, n)
		}
	}
	if st := l.Status(); all > st.Issued || ok > all || ok == 0 {
		t.Errorf("issued %d, arrived %d, wrk saw %d", st.Issued, all, ok)
	}
}

// stamp notes when a request leaves.
type stamp struct{ http.RoundTripper }

func (s stamp) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Window", strconv.FormatInt(time.Now().UnixNano(), 10))
	return s.RoundTripper.RoundTrip(r)
}
