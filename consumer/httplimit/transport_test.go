package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

// open returns a limiter of its own, with the limits as operators write them.
func open(t testing.TB, limits string) *consumer.Limiter {
	t.Helper()
	return openShaped(t, limits, quota.Policy{})
}

// openShaped is open with the rest of the policy.
func openShaped(t testing.TB, limits string, policy quota.Policy) *consumer.Limiter {
	t.Helper()
	l, err := quota.ParseLimits(limits)
	if err != nil {
		t.Fatal(err)
	}
	policy.Limits = l
	limiter, err := consumer.Open(context.Background(), consumer.Fixed(policy), "p",
		consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Close() })
	return limiter
}

// provider answers in place of a network, and counts.
type provider struct {
	calls  int
	status int
	header http.Header
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	p.calls++
	status := p.status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{StatusCode: status, Header: p.header, Body: http.NoBody, Request: r}, nil
}

func get(t testing.TB, client *http.Client, url string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// body notes that it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error { b.closed = true; return nil }

func TestLocalRefusalIsAURLError(t *testing.T) {
	t.Parallel()
	p := &provider{}
	client := &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: open(t, "0/1m")}}
	sent := &body{Reader: strings.NewReader("{}")}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://provider.example/charge", sent)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Do(r) //nolint:bodyclose // there is no response
	if _, ok := errors.AsType[*url.Error](err); !ok {
		t.Errorf("got %T: %v", err, err)
	}
	if limited, ok := errors.AsType[consumer.LimitError](err); !ok || !errors.Is(err, consumer.ErrLimited) || limited.Provider != "p" {
		t.Errorf("got %v", err)
	}
	if !sent.closed || p.calls != 0 {
		t.Errorf("body closed: %v; calls that left: %d", sent.closed, p.calls)
	}
}

func TestNilBaseIsTheDefaultTransport(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer server.Close()
	client := &http.Client{Transport: &httplimit.Transport{Limiter: open(t, "1000000/1m")}}
	defer client.CloseIdleConnections()
	response, err := client.Post(server.URL, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); err != nil || string(text) != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestAnEmptyTransportSendsNothing(t *testing.T) {
	t.Parallel()
	p := &provider{}
	if err := get(t, &http.Client{Transport: &httplimit.Transport{Base: p}}, "http://a/"); err == nil || !strings.Contains(err.Error(), "httplimit: there is no limiter: set Limiter or Pick") || p.calls != 0 {
		t.Errorf("got %v, %d calls", err, p.calls)
	}
}

func TestPickAndCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		tight := open(t, "5/s")
		client := &http.Client{Transport: &httplimit.Transport{
			Base: p,
			Pick: func(r *http.Request) *consumer.Limiter {
				if r.URL.Host == "tight" {
					return tight
				}
				return nil
			},
			Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) - 1 },
		}}
		for _, step := range []struct {
			url     string
			refused bool
		}{
			{"http://tight/abc", false}, // 3 of 5
			{"http://tight/abc", true},
			{"http://tight/ab", false},
			{"http://tight/a", true},
			{"http://tight/", false},       // costs nothing
			{"http://other/abcdef", false}, // has no limiter
		} {
			if err := get(t, client, step.url); errors.Is(err, consumer.ErrLimited) != step.refused {
				t.Errorf("%s: %v", step.url, err)
			}
		}
		if p.calls != 4 {
			t.Errorf("%d calls, want 4", p.calls)
		}
	})
}

func TestRequestsWaitAsLongAsTheyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, limiter := &provider{}, open(t, "1/s")
		begin := time.Now()
		wait := func(maxWait, timeout time.Duration) error {
			return get(t, &http.Client{Timeout: timeout, Transport: &httplimit.Transport{Base: p, Limiter: limiter, MaxWait: maxWait}}, "http://a/")
		}
		for range 3 {
			if err := wait(consumer.Forever, 0); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("took %v, want 2s", took)
		}
		// Neither the wait nor the client's own timeout reaches the next window, so
		// both are refused at once.
		for _, err := range []error{wait(time.Millisecond, 0), wait(consumer.Forever, time.Millisecond)} {
			if !errors.Is(err, consumer.ErrLimited) || time.Since(begin) != 2*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
		}
		// A caller who gives up sees its own error.
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://a/", nil)
		client := &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: limiter, MaxWait: consumer.Forever}}
		if _, err := client.Do(r); !errors.Is(err, context.Canceled) { //nolint:bodyclose // there is no response
			t.Errorf("got %v", err)
		}
	})
}

func TestRetryAfterPausesTheLimiter(t *testing.T) {
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		name     string
		status   int
		header   func() http.Header
		maxPause time.Duration
		want     time.Duration
	}{
		{"seconds", 429, func() http.Header { return http.Header{"Retry-After": {"7"}} }, 0, 7 * time.Second},
		{"503", 503, func() http.Header { return http.Header{"Retry-After": {"7"}} }, 0, 7 * time.Second},
		{"a date", 429, func() http.Header { return http.Header{"Retry-After": {date(9 * time.Second)}} }, 0, 9 * time.Second},
		{"a date by the server's clock, an hour ahead", 429, func() http.Header {
			return http.Header{"Retry-After": {date(time.Hour + 9*time.Second)}, "Date": {date(time.Hour)}}
		}, 0, 9 * time.Second},
		{"capped", 429, func() http.Header { return http.Header{"Retry-After": {"86400"}} }, 0, time.Minute},
		{"capped by choice", 429, func() http.Header { return http.Header{"Retry-After": {"99999999999999999999"}} }, 30 * time.Second, 30 * time.Second},
		{"not heeded", 429, func() http.Header { return http.Header{"Retry-After": {"7"}} }, -1, 0},
		{"success", 200, func() http.Header { return http.Header{"Retry-After": {"7"}} }, 0, 0},
		{"no field", 429, func() http.Header { return http.Header{} }, 0, 0},
		{"decimals", 429, func() http.Header { return http.Header{"Retry-After": {"2.0"}} }, 0, 2 * time.Second},
		{"less than a second", 429, func() http.Header { return http.Header{"Retry-After": {"0.493"}} }, 0, 493 * time.Millisecond},
		{"GitHub's limit of an hour", 403, func() http.Header {
			return http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {strconv.FormatInt(time.Now().Unix()+20, 10)}}
		}, 0, 20 * time.Second},
		{"the same by the server's clock, an hour behind", 429, func() http.Header {
			return http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {strconv.FormatInt(time.Now().Unix()+20-3600, 10)}, "Date": {date(-time.Hour)}}
		}, 0, 20 * time.Second},
		{"GitHub's secondary limit", 403, func() http.Header { return http.Header{"Retry-After": {"7"}} }, 0, 7 * time.Second},
		{"Retry-After counts before a reset", 403, func() http.Header {
			return http.Header{"Retry-After": {"7"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"20"}}
		}, 0, 7 * time.Second},
		{"no rights", 403, func() http.Header {
			return http.Header{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"20"}}
		}, 0, 0},
		{"the last call of an hour", 200, func() http.Header {
			return http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"20"}}
		}, 0, 0},
		{"no rights, not heeded", 403, func() http.Header { return http.Header{"Retry-After": {"7"}} }, -1, 0},
		{"nonsense", 429, func() http.Header { return http.Header{"Retry-After": {"-7"}} }, 0, 0},
		{"the past", 429, func() http.Header { return http.Header{"Retry-After": {date(-time.Minute)}} }, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := open(t, "1000/100ms")
				p := &provider{status: c.status, header: c.header()}
				client := &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: limiter, MaxPause: c.maxPause}}
				if err := get(t, client, "http://a/"); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				err := get(t, client, "http://a/")
				limited, _ := errors.AsType[consumer.LimitError](err)
				if c.want > 0 && (limited.Reason != consumer.ReasonPause) || c.want == 0 && err != nil {
					t.Errorf("next request: %v", err)
				}
				if err := limiter.Acquire(t.Context(), consumer.Forever); err != nil || time.Since(begin) != c.want {
					t.Errorf("paused for %v, want %v (%v)", time.Since(begin), c.want, err)
				}
			})
		})
	}
}

// One answer without Retry-After is no reason to pause; many are, but not of a server
// that is broken.
func TestAnswersWithoutRetryAfter(t *testing.T) {
	spent := http.Header{"X-Ratelimit-Remaining": {"0"}}
	for _, c := range []struct {
		status int
		header http.Header
		want   time.Duration
	}{{429, nil, time.Second}, {503, nil, 0}, {403, nil, 0}, {403, spent, time.Second}, {404, spent, 0}} {
		synctest.Test(t, func(t *testing.T) {
			limiter, p := open(t, "1000/100ms"), &provider{status: c.status, header: c.header}
			client := &http.Client{Transport: &httplimit.Transport{Base: p, Limiter: limiter}}
			for range 3 {
				if err := get(t, client, "http://api.example/"); err != nil {
					t.Fatal(err)
				}
			}
			st := limiter.Status()
			if got := max(0, time.Until(st.PausedUntil)); got != c.want || c.want > 0 && st.PauseReason != fmt.Sprint(c.status, " from api.example") {
				t.Errorf("%d %v: paused for %v, want %v: %q", c.status, c.header, got, c.want, st.PauseReason)
			}
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"1", "0", "", "-1", "1.5", "1.", ".5", "9223372036.9999999", "Sun, 06 Nov 1994 08:49:37 GMT", "99999999999999999999", " 7"} {
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, after, date string) {
		d := httplimit.RetryAfter(http.Header{"Retry-After": {after}, "Date": {date}}, time.Unix(0, 0))
		if d < 0 {
			t.Errorf("%q, %q: %v", after, date, d)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	const longest = time.Duration(1<<63 - 1)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "120": 2 * time.Minute, "-5": 0, "+5": 0, "soon": 0, "1_000": 0, "1e3": 0, "Inf": 0, "0x1p4": 0, "120junk": 0, ".5": 0, "1.2.3": 0,
		"1.5": 1500 * time.Millisecond, "2.0": 2 * time.Second, "0.493": 493 * time.Millisecond, "0.4931": 494 * time.Millisecond, "0.0001": time.Millisecond, "0.0": 0, "7.": 7 * time.Second,
		"9223372036": 9223372036 * time.Second, "9223372037": longest, "99999999999999999999": longest,
		"Thu, 01 Jan 1970 00:00:10 GMT": 10 * time.Second, "Wed, 31 Dec 1969 23:59:00 GMT": 0,
	} {
		if got := httplimit.RetryAfter(http.Header{"Retry-After": {text}}, time.Unix(0, 0)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for d, want := range map[time.Duration]int64{-1: 1, 0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		if got := httplimit.Seconds(d); got != want {
			t.Errorf("%v: %d s, want %d", d, got, want)
		}
	}
}
