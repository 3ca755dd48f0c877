package httplimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/httplimit"
	"github.com/quotient-limiter/quotient/quota"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "served") })

func limits(t testing.TB, text string) []quota.Limit {
	t.Helper()
	l, err := quota.ParseLimits(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// ask lets a handler answer a request from an address.
func ask(t testing.TB, h http.Handler, from string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if from != "" {
		r.RemoteAddr = from
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// says is what matters of a response.
func says(w *httptest.ResponseRecorder) string {
	h := w.Result().Header
	return fmt.Sprintf("%d retry %s policy %s limit %s", w.Code, h.Get("Retry-After"),
		strings.Join(h.Values("RateLimit-Policy"), ", "), strings.Join(h.Values("RateLimit"), ", "))
}

// Requests have the class that the option says.
func TestHandlerKnowsClasses(t *testing.T) {
	limiter := open(t, "2/m")
	limit, err := httplimit.Handler(limiter, httplimit.Options{Class: func(r *http.Request) consumer.Class {
		if strings.HasPrefix(r.RemoteAddr, "10.0.0.1") {
			return consumer.Critical
		}
		return consumer.Sheddable
	}})
	if err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]consumer.Class{"10.0.0.1:80": consumer.Critical, "10.0.0.2:80": consumer.Sheddable} {
		if w := ask(t, limit(ok), from); w.Code != http.StatusOK || limiter.Status().IssuedBy[want] != 1 {
			t.Errorf("from %s: %d, issued by class %v", from, w.Code, limiter.Status().IssuedBy)
		}
	}
}

// Requests have the label that the option returns, or none. A request with a bad label is
// answered with 400, and its key has no part in that.
func TestHandlerKnowsLabels(t *testing.T) {
	limiter := open(t, "5/m")
	limit, err := httplimit.Handler(limiter, httplimit.Options{Label: func(r *http.Request) string { return strings.TrimSuffix(r.RemoteAddr, ":80") }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from string
		code int
	}{{"report:80", 200}, {":80", 200}, {"a\n:80", 400}, {"report:80", 200}} {
		if w := ask(t, limit(ok), c.from); w.Code != c.code || c.code == 400 && !strings.Contains(w.Body.String(), "has a control character") {
			t.Errorf("from %q: %d %s", c.from, w.Code, w.Body)
		}
	}
	if st := limiter.Status(); st.IssuedByLabel["report"] != 2 || st.Issued != 3 || st.Refused != 0 {
		t.Errorf("issued %d, refused %d, by label %v", st.Issued, st.Refused, st.IssuedByLabel)
	}
}

func TestHandlerTellsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := httplimit.Handler(open(t, "2/2s,5/10s,7/250ms"), httplimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := limit(ok)
		const policy = `"default-250ms";q=7, "default-2s";q=2;w=2, "default-10s";q=5;w=10`
		want := []string{
			`200 retry  policy ` + policy + ` limit "default-250ms";r=6;t=1, "default-2s";r=1;t=2, "default-10s";r=4;t=10`,
			`200 retry  policy ` + policy + ` limit "default-250ms";r=5;t=1, "default-2s";r=0;t=2, "default-10s";r=3;t=10`,
			`429 retry 2 policy ` + policy + ` limit "default-250ms";r=5;t=1, "default-2s";r=0;t=2, "default-10s";r=3;t=10`,
		}
		for i := range want {
			if got := says(ask(t, h, "")); got != want[i] {
				t.Errorf("request %d:\ngot  %s\nwant %s", i, got, want[i])
			}
		}
		time.Sleep(1999 * time.Millisecond)
		w := ask(t, h, "")
		if got := w.Result().Header.Get("Retry-After"); got != "1" {
			t.Errorf("1 ms before the window's end: Retry-After %s, want 1", got)
		}
		var problem struct {
			Type     string   `json:"type"`
			Status   int      `json:"status"`
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || problem.Status != 429 ||
			!cmp.Equal(problem.Violated, []string{"default-2s"}) || !strings.HasSuffix(problem.Type, "#quota-exceeded") {
			t.Errorf("got %s, %v", w.Body, err)
		}
	})
}

func TestHandlerSaysWhenItCannotAdmitAnybody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := open(t, "5/s,5000/h")
		limit, err := httplimit.Handler(limiter, httplimit.Options{MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		h := limit(ok)
		limiter.PauseUntil(time.Now().Add(100 * time.Second))
		paused := ask(t, h, "")
		if got, want := says(paused), `429 retry 100 policy  limit `; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if body := paused.Body.String(); strings.Contains(body, "used up") || !strings.Contains(body, `#temporary-reduced-capacity","title":"The provider asked for a pause","status":429,"retry_after":100}`) {
			t.Errorf("no limit is spent: %s", body)
		}
		limiter.Resume()
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("a request whose time is over: %d", w.Code)
		}
		_ = limiter.Close()
		if got := says(ask(t, h, "")); !strings.HasPrefix(got, "503 retry 1 ") {
			t.Errorf("closed: %s", got)
		}
	})
}

func TestHandlerOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := httplimit.Handler(open(t, "1/1m"), httplimit.Options{
			Cost: func(r *http.Request) int64 {
				if r.URL.Path == "/health" {
					return 0
				}
				return 1
			},
			Refuse: func(w http.ResponseWriter, _ *http.Request, status int, err error) {
				http.Error(w, err.Error(), status+1)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		var codes []int
		for _, path := range []string{"/", "/", "/health", "/"} {
			w := httptest.NewRecorder()
			limit(ok).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			codes = append(codes, w.Code)
		}
		if want := []int{200, 430, 200, 430}; !cmp.Equal(codes, want) {
			t.Errorf("got %v, want %v", codes, want)
		}
	})
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	l := open(t, "1/s")
	for name, f := range map[string]func() error{
		"nil limiter": func() error { _, err := httplimit.Handler(nil, httplimit.Options{}); return err },
		"line break":  func() error { _, err := httplimit.Handler(l, httplimit.Options{Name: "a\r\nb"}); return err },
		"umlaut":      func() error { _, err := httplimit.Handler(l, httplimit.Options{Name: "ä"}); return err },
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestMiddlewareAroundMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, err := httplimit.Handler(open(t, "2/s"), httplimit.Options{Name: "all"})
		if err != nil {
			t.Fatal(err)
		}
		route, err := httplimit.Handler(open(t, "1/s"), httplimit.Options{Name: "route"})
		if err != nil {
			t.Fatal(err)
		}
		h := all(route(ok))
		for i, want := range []string{
			`200 retry  policy "all-1s";q=2;w=1, "route-1s";q=1;w=1 limit "all-1s";r=1;t=1, "route-1s";r=0;t=1`,
			`429 retry 1 policy "all-1s";q=2;w=1, "route-1s";q=1;w=1 limit "all-1s";r=0;t=1, "route-1s";r=0;t=1`,
			`429 retry 1 policy "all-1s";q=2;w=1 limit "all-1s";r=0;t=1`,
		} {
			if got := says(ask(t, h, "192.0.2.1:1")); got != want {
				t.Errorf("request %d:\ngot  %s\nwant %s", i, got, want)
			}
		}
	})
}

// While a change of the window's length settles, the limit of before binds too, and
// the fields say so.
func TestFieldsTellTheLimitThatStillBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := consumer.Fixed(quota.Policy{Limits: limits(t, "1/2s")})
		limiter, err := consumer.Open(t.Context(), source, "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		limit, err := httplimit.Handler(limiter, httplimit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		h := limit(ok)
		ask(t, h, "")
		if err := source.Set(quota.Policy{Limits: limits(t, "50/10s")}); err != nil {
			t.Fatal(err)
		}
		const both = `429 retry 2 policy "default-2s";q=1;w=2, "default-10s";q=50;w=10 limit "default-2s";r=0;t=2, "default-10s";r=`
		if got := says(ask(t, h, "")); !strings.HasPrefix(got, both) {
			t.Errorf("got  %s\nwant %s", got, both)
		}
		time.Sleep(20 * time.Second)
		const one = `200 retry  policy "default-10s";q=50;w=10 limit "default-10s";r=49;t=10`
		if got := says(ask(t, h, "")); got != one {
			t.Errorf("settled:\ngot  %s\nwant %s", got, one)
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	limit, err := httplimit.Handler(open(b, "1000000000000/1m"), httplimit.Options{})
	if err != nil {
		b.Fatal(err)
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		name string
		h    http.Handler
	}{{"limit=none", nothing}, {"limit=fleet", limit(nothing)}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
			for b.Loop() {
				c.h.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
