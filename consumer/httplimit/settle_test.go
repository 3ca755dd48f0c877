package httplimit_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
)

// spent returns how many permits of 100 are used up, or owed.
func spent(l *consumer.Limiter) int64 {
	return l.Status().Issued + l.Status().Debt
}

// A header tells what a request has cost: more, less, nothing, or not.
func TestAHeaderSaysTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			header string
			status int
			want   int64
		}{{"7", 200, 7}, {"140", 200, 140}, {"", 200, 10}, {"", 304, 0}, {"many", 200, 10}} {
			limiter := open(t, "100/1h")
			p := &provider{status: c.status, header: http.Header{"X-Cost": {c.header}}}
			client := &http.Client{Transport: &httplimit.Transport{
				Base: p, Limiter: limiter, Cost: func(*http.Request) int64 { return 10 },
				Settle: func(r *http.Response) (int64, bool) {
					if r.StatusCode == http.StatusNotModified {
						return 0, true
					}
					cost, err := strconv.ParseInt(r.Header.Get("X-Cost"), 10, 64)
					return cost, err == nil
				},
			}}
			r, err := client.Get("http://api.example/")
			if err != nil {
				t.Fatal(err)
			}
			if n := spent(limiter); n != c.want {
				t.Errorf("cost %q, status %d: %d permits, want %d", c.header, c.status, n, c.want)
			}
			told := c.want != 10
			if err := httplimit.Settle(r, 3); errors.Is(err, consumer.ErrInvalid) != told {
				t.Errorf("told %v: %v", told, err)
			}
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
			if n := spent(limiter); !told && n != 3 || told && n != c.want {
				t.Errorf("after Close %d permits", n)
			}
		}
	})
}

// The body tells it: the last cost counts, once the body is closed.
func TestABodySaysTheCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "100/1h")
		client := &http.Client{Transport: &httplimit.Transport{Base: &provider{}, Limiter: limiter, Cost: func(*http.Request) int64 { return 10 }}}
		r, err := client.Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		for cost := range int64(5) {
			if err := httplimit.Settle(r, cost); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.ReadAll(r.Body); err != nil || spent(limiter) != 10 {
			t.Error(err, spent(limiter))
		}
		for range 2 { // a second Close books nothing more
			if err := r.Body.Close(); err != nil || spent(limiter) != 4 {
				t.Error(err, spent(limiter))
			}
		}
		if err := httplimit.Settle(r, 1); !errors.Is(err, consumer.ErrInvalid) {
			t.Error(err)
		}
		if err := httplimit.Settle(&http.Response{Body: http.NoBody}, 1); !errors.Is(err, consumer.ErrInvalid) {
			t.Error(err)
		}
		r, err = client.Get("http://api.example/")
		if err != nil {
			t.Fatal(err)
		}
		if err := httplimit.Settle(r, -1); err != nil {
			t.Fatal(err)
		}
		if err := r.Body.Close(); !errors.Is(err, consumer.ErrInvalid) {
			t.Error("a cost that cannot be was booked:", err)
		}
	})
}

// A response that is a connection from now on can still be written to.
func TestAnUpgradeIsLeftAlone(t *testing.T) {
	limiter := open(t, "100/1h")
	base := roundTrip(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: connection{http.NoBody, io.Discard}}
	})
	r, err := (&httplimit.Transport{Base: base, Limiter: limiter}).RoundTrip(must(http.NewRequest(http.MethodGet, "http://api.example/", http.NoBody)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, ok := r.Body.(io.Writer); !ok {
		t.Error("nobody can write to it")
	}
}

type connection struct {
	io.ReadCloser
	io.Writer
}

type roundTrip func(*http.Request) *http.Response

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A provider with a rule of its own says when it wants a pause.
func TestRefusedDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "100/1h")
		p := &provider{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"9"}}}
		transport := &httplimit.Transport{Base: p, Limiter: limiter, Refused: func(r *http.Response) (time.Duration, bool) {
			return time.Hour, r.Header.Get("Retry-After") == "10"
		}}
		ask := func() error {
			r, err := (&http.Client{Transport: transport}).Get("http://api.example/")
			if err == nil {
				_ = r.Body.Close()
			}
			return err
		}
		if err := ask(); err != nil || !limiter.Status().PausedUntil.IsZero() {
			t.Error("a pause that Refused does not want:", err)
		}
		p.header.Set("Retry-After", "10")
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if err := ask(); !errors.Is(err, consumer.ErrLimited) {
			t.Error("no pause:", err)
		}
	})
}
