package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
)

// canBegin fails the test unless so many calls can begin.
func canBegin(t *testing.T, l *consumer.Limiter, want int64) {
	t.Helper()
	p := l.TryTake(100)
	if p.N() != want {
		t.Errorf("%d calls can begin, want %d", p.N(), want)
	}
	p.Done()
}

// begin makes a call, as docs/http-grpc.md shows.
func begin(ctx context.Context, permit consumer.Permit, call func(context.Context)) {
	ctx, done := permit.Begin(ctx)
	defer done()
	call(ctx)
}

// Two Transports, one in the other, take of both limits. What one refuses counts for the other as it should.
func TestTransportsInEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flight, requests := open(t, "2 inflight hold=10m"), open(t, "3/1m")
		client := &http.Client{Transport: &httplimit.Transport{Limiter: flight, Base: &httplimit.Transport{Limiter: requests, Base: &provider{}}}}
		for range 3 {
			if err := get(t, client, "http://api.example/"); err != nil {
				t.Error(err)
			}
		}
		if err := get(t, client, "http://api.example/"); !errors.Is(err, consumer.ErrLimited) {
			t.Error(err)
		}
		canBegin(t, flight, 2)
		begin(t.Context(), flight.TryTake(2), func(context.Context) {
			if err := get(t, client, "http://api.example/"); !errors.Is(err, consumer.ErrLimited) {
				t.Error(err)
			}
		})
		canBegin(t, flight, 2)
	})
}

// A request counts until its Body is closed, whatever has been read or told before.
func TestARequestInFlightEndsWithItsBody(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusSwitchingProtocols} {
		synctest.Test(t, func(t *testing.T) {
			limiter := open(t, "2 inflight hold=10m")
			transport := &httplimit.Transport{
				Base: &provider{status: status}, Limiter: limiter, MaxPause: -1,
				Settle: func(*http.Response) (int64, bool) { return 7, true }, // of a limit that counts no costs
			}
			client := &http.Client{Transport: transport}
			first, err := client.Get("http://api.example/") //nolint:bodyclose // below
			if err != nil {
				t.Fatal(err)
			}
			transport.Settle = nil
			second, err := client.Get("http://api.example/") //nolint:bodyclose // below
			if err != nil {
				t.Fatal(err)
			}
			if status != http.StatusSwitchingProtocols {
				if err := httplimit.Settle(second, 9); err != nil {
					t.Error(err)
				}
			}
			if _, err := client.Get("http://api.example/"); !errors.Is(err, consumer.ErrLimited) { //nolint:bodyclose // there is none
				t.Errorf("a third request: %v", err)
			}
			for _, r := range []*http.Response{first, second} {
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Error(err)
				}
			}
			canBegin(t, limiter, 0)
			for i, r := range []*http.Response{first, first, second} {
				if err := r.Body.Close(); err != nil {
					t.Error(err)
				}
				canBegin(t, limiter, []int64{1, 1, 2}[i])
			}
		})
	}
}

// A connection that has switched protocols counts until it is closed, and can still be written to.
func TestAnUpgradeInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1 inflight hold=10m")
		base := roundTrip(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: connection{http.NoBody, io.Discard}}
		})
		r, err := (&httplimit.Transport{Base: base, Limiter: limiter}).RoundTrip(must(http.NewRequest(http.MethodGet, "http://api.example/", http.NoBody)))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Body.(io.Writer); !ok {
			t.Error("nobody can write to it")
		}
		canBegin(t, limiter, 0)
		if err := r.Body.Close(); err != nil {
			t.Error(err)
		}
		canBegin(t, limiter, 1)
	})
}

// failing answers nothing until the request's context ends, and then its cause; at once without patience.
type failing struct{ patient bool }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !f.patient {
		return nil, io.ErrUnexpectedEOF
	}
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// A request that fails has ended. One that lasts for too long is ended when its permit does.
func TestARequestInFlightEndsWithItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1 inflight hold=8s")
		client := &http.Client{Transport: &httplimit.Transport{Base: failing{}, Limiter: limiter}}
		if err := get(t, client, "http://api.example/"); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
		canBegin(t, limiter, 1)
		client.Transport.(*httplimit.Transport).Base = failing{patient: true}
		for range 3 {
			began := time.Now()
			err := get(t, client, "http://api.example/")
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took < 8*time.Second || took > 10*time.Second {
				t.Errorf("%v after %v", err, took)
			}
			canBegin(t, limiter, 1)
		}
	})
}

// A server's request counts until its handler has returned, also by a panic, and knows when its permit ends.
func TestAHandlerInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "1 inflight hold=8s")
		middleware := must(httplimit.Handler(limiter, httplimit.Options{}))
		var inner *httptest.ResponseRecorder
		serve := func(f http.HandlerFunc) http.Handler { return middleware(f) }
		ask(t, serve(func(_ http.ResponseWriter, r *http.Request) {
			inner = ask(t, serve(func(http.ResponseWriter, *http.Request) { t.Error("two at once") }), "")
			began := time.Now()
			<-r.Context().Done()
			if took := time.Since(began); took < 8*time.Second || took > 10*time.Second {
				t.Errorf("the context ended after %v", took)
			}
		}), "")
		const want = `429 policy "default-inflight";q=1;qu="concurrent-requests" limit "default-inflight";r=0 retry 1`
		h := inner.Header()
		if got := fmt.Sprintf("%d policy %s limit %s retry %s", inner.Code, h.Get("RateLimit-Policy"), h.Get("RateLimit"), h.Get("Retry-After")); got != want {
			t.Errorf("the second has\n%s, want\n%s", got, want)
		}
		if body := inner.Body.String(); !strings.Contains(body, "Too many requests are under way") {
			t.Error(body)
		}
		func() {
			defer func() { _ = recover() }()
			ask(t, serve(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "")
		}()
		canBegin(t, limiter, 1)
	})
}
