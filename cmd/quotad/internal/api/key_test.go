package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// keyedServer returns a server with a limit of so many permits a second for all, and so many
// for each key.
func keyedServer(t *testing.T, all, each int64) *Server {
	t.Helper()
	second := func(n int64) []quota.Limit { return []quota.Limit{{Permits: n, Window: time.Second}} }
	return serverOf(t, consumer.Fixed(quota.Policy{Limits: second(all), Keys: quota.Keys{Limits: second(each), Most: 3}}), roomy)
}

func body(key string, wait float64) string {
	return fmt.Sprintf(`{"provider":"p","key":%q,"max_wait":%v}`, key, wait)
}

// Each key has its own limit, and a refusal says which limit refused. Without a key, and with
// the empty one, a call is of the provider only.
func TestCallsHaveKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keyedServer(t, 5, 1)
		p := newProcess(t, s, "one")
		for _, key := range []string{"a", "b", ""} {
			if w := p.post("/v1/acquire", body(key, 0)); w.Code != 200 {
				t.Errorf("key %q: %d %s", key, w.Code, w.Body)
			}
		}
		w := p.post("/v1/acquire", body("a", 0))
		text, limit := w.Body.String(), strings.Join(w.Result().Header.Values("RateLimit"), "")
		if w.Code != 429 || !strings.Contains(text, `"violated-policies":["p-key-1s"]`) || !strings.Contains(text, `for key \"a\": the limit of 1/s is used up`) || limit != `"p-1s";r=2;t=1, "p-key-1s";r=0;t=1` {
			t.Errorf("%d %s, RateLimit %s", w.Code, text, limit)
		}
		for range 2 {
			p.post("/v1/acquire", `{"provider":"p"}`)
		}
		if w := p.post("/v1/acquire", body("c", 0)); w.Code != 429 || !strings.Contains(w.Body.String(), `"violated-policies":["p-1s"]`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		for _, key := range []string{"a", "b", "c"} {
			p.post("/v1/acquire", body(key, 0))
		}
		if w := p.post("/v1/acquire", body("d", 0)); w.Code != 503 || !strings.Contains(w.Body.String(), "--keys-most") || w.Header().Get("Retry-After") != "1" {
			t.Errorf("one key too many: %d %v %s", w.Code, w.Header(), w.Body)
		}
		for key, want := range map[string]string{
			strings.Repeat("x", 257): "has 257 bytes, more than the most, 256",
			"a\nb":                   "has a control character",
		} {
			if w := p.post("/v1/acquire", body(key, 0)); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%q: %d %s", key, w.Code, w.Body)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 5, roomy)
		if w := newProcess(t, s, "one").post("/v1/acquire", body("a", 0)); w.Code != 404 || !strings.Contains(w.Body.String(), "by key") {
			t.Errorf("a provider without limits by key: %d %s", w.Code, w.Body)
		}
	})
}

// The state of a provider has its busiest keys on this host.
func TestShowsTheBusiestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keyedServer(t, 100, 2)
		p := newProcess(t, s, "one")
		p.do(t.Context(), "GET", "/v1/providers/p", "")
		for range 10 {
			for range 3 {
				p.post("/v1/acquire", body("a", 0))
			}
			time.Sleep(time.Second)
		}
		p.post("/v1/acquire", body("a", 0)) // a window later: the one before is counted
		w := p.do(t.Context(), "GET", "/v1/providers/p", "")
		if want := `"keys_in_use":1,"busiest_keys":[{"name":"a","issued":2,"refused":1}]`; !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s, want %s", w.Body, want)
		}
	})
}

// A batch of a key has at most the key's permits.
func TestABatchOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, keyedServer(t, 100, 3), "one")
		const batch = `{"partial":true,"provider":"p","permits":50,"key":"a","max_wait":5}`
		first := grantOf(t, p.post("/v1/acquire", batch))
		began := time.Now()
		second := grantOf(t, p.post("/v1/acquire", batch))
		if first.Permits != 3 || second.Permits != 3 || time.Since(began) != time.Second {
			t.Errorf("%d, and %d after %v; want 3, and 3 after a second", first.Permits, second.Permits, time.Since(began))
		}
	})
}

// A call that waits for a spent key holds up neither another key nor the provider. Calls of
// one key are served in their order, whoever sends them.
func TestCallsOfAKeyKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := keyedServer(t, 100, 1)
		one := newProcess(t, s, "one")
		one.post("/v1/acquire", body("a", 0))
		var mu sync.Mutex
		var order []string
		wait := func(process, key string) {
			p := newProcess(t, s, process)
			go func() {
				if w := p.post("/v1/acquire", body(key, 30)); w.Code != 200 {
					t.Errorf("%s, key %q: %d %s", process, key, w.Code, w.Body)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, process+" "+key)
			}()
			synctest.Wait()
		}
		wait("first", "a")
		wait("second", "a")
		wait("first", "a")
		wait("other", "b")
		wait("plain", "")
		mu.Lock()
		if diff := cmp.Diff([]string{"other b", "plain "}, order); diff != "" {
			t.Errorf("before the window's end (-want +got):\n%s", diff)
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"first a", "second a", "first a"}, order[min(2, len(order)):]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
