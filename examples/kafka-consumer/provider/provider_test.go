package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The counts agree with a list of everything that came.
func TestCountsAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(1, 10).Draw(t, "limit")
		c := newCounts(limit, time.Second)
		arrived := map[int64]int64{}
		times := map[uint64]int64{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "arrives") {
				ms, n := rapid.Int64Range(0, 9999).Draw(t, "ms"), rapid.Int64Range(1, 4).Draw(t, "n")
				c.arrive(time.UnixMilli(ms), n)
				arrived[ms/1000] += n
			} else {
				key := rapid.Uint64Range(0, 9).Draw(t, "key")
				c.process(key)
				times[key]++
			}
		}
		var want Totals
		for _, n := range arrived {
			want.Records += n
			want.Worst.Records = max(want.Worst.Records, n)
			if n > limit {
				want.Over++
			}
		}
		for _, n := range times {
			want.Processed++
			want.Repeated += n - 1
		}
		got := c.summary()
		if got.Records != want.Records || got.Worst.Records != want.Worst.Records || got.Over != want.Over ||
			got.Processed != want.Processed || got.Repeated != want.Repeated {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if r := c.recent(3); len(r) > 3 || len(r) > 1 && !r[0].Start.After(r[1].Start) {
			t.Fatalf("recent: %v", r)
		}
	})
}

// post returns the answer's status, Retry-After and outcome.
func post(t *testing.T, url, kind, body string) (code int, after string, o Outcome) {
	t.Helper()
	r, err := http.Post(url, kind, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode == http.StatusOK {
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			t.Fatal(err)
		}
	}
	return r.StatusCode, r.Header.Get("Retry-After"), o
}

func TestCalls(t *testing.T) {
	t.Parallel()
	p := New(Config{Limit: 100, Window: time.Minute})
	server := httptest.NewServer(p)
	defer server.Close()
	if code, _, _ := post(t, server.URL, "text/plain", "1"); code != http.StatusNoContent {
		t.Error(code)
	}
	if code, _, _ := post(t, server.URL, "text/plain", "poison 2"); code != http.StatusUnprocessableEntity {
		t.Error(code)
	}
	if code, _, o := post(t, server.URL, NDJSON, "1\npoison 3\n4"); code != http.StatusOK || len(o.Rejected) != 1 || o.Rejected[0] != 1 {
		t.Error(code, o)
	}
	p.Overload(time.Hour)
	if code, after, _ := post(t, server.URL, "text/plain", "5"); code != http.StatusTooManyRequests || after != "3600" {
		t.Error(code, after)
	}
	if got := p.Totals(); got.Calls != 4 || got.Records != 6 || got.Processed != 2 || got.Repeated != 1 || got.Rejected != 2 || got.Refused != 1 {
		t.Errorf("%+v", got)
	}
	for _, path := range []string{"/", "/counts"} {
		r, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Error(path, r.Status)
		}
	}
}

// A forwarded call is answered by the real provider, with its Retry-After, and
// only what that one processed counts as processed.
func TestForward(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/charge" || r.Header.Get("Idempotency-Key") == "" {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer upstream.Close()
	forward, err := url.Parse(upstream.URL + "/charge")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Limit: 100, Window: time.Minute, Forward: forward})
	server := httptest.NewServer(p)
	defer server.Close()
	if code, after, _ := post(t, server.URL, "text/plain", "1"); code != http.StatusTooManyRequests || after != "7" {
		t.Error(code, after)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("1"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Idempotency-Key", "t/0/0")
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if got := p.Totals(); r.StatusCode != http.StatusOK || got.Processed != 1 || got.Records != 2 {
		t.Errorf("%s, %+v", r.Status, got)
	}
}
