package api

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// serverOfTwo returns a server with limits of 3 a second for each of p and q, and of 1 for
// each of their keys.
func serverOfTwo(t *testing.T) *Server {
	t.Helper()
	second := func(n int64) []quota.Limit { return []quota.Limit{{Permits: n, Window: time.Second}} }
	return serverOf(t, consumer.Fixed(quota.Policy{Limits: second(3), Keys: quota.Keys{Limits: second(1), Most: 9}}), roomy)
}

// left returns what a provider has left.
func left(t *testing.T, s *Server, provider string) int64 {
	t.Helper()
	status, ok := s.host.Status(provider)
	if !ok {
		t.Fatal(provider, "is not open")
	}
	return status.Shortest().Left
}

// A call with wants takes permits of all providers and keys, or of none. A refusal tells of
// the one that has too few.
func TestWantsAreAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOfTwo(t)
		p := newProcess(t, s, "one")
		time.Sleep(250 * time.Millisecond)
		const both = `{"wants":[{"provider":"p"},{"provider":"q","key":"a","permits":1}]}`
		w := p.post("/v1/acquire", both)
		if g := grantOf(t, w); g.ID != "" || strings.Contains(w.Body.String(), "permits") || g.ExpiresIn <= 0.7 || g.ExpiresIn > 0.75 {
			t.Errorf("%s", w.Body)
		}
		w = p.post("/v1/acquire", both)
		if w.Code != 429 || !strings.Contains(w.Body.String(), `"violated-policies":["q-key-1s"]`) || w.Header().Get("RateLimit") != `"q-1s";r=2;t=1, "q-key-1s";r=0;t=1` {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		if p, q := left(t, s, "p"), left(t, s, "q"); p != 2 || q != 2 {
			t.Errorf("a refused call took permits: %d and %d of 2 are left", p, q)
		}
		w = p.post("/v1/acquire", `{"wants":[{"provider":"p"},{"provider":"x"}]}`)
		if w.Code != 404 || left(t, s, "p") != 2 {
			t.Errorf("%d %s, %d left", w.Code, w.Body, left(t, s, "p"))
		}
		w = p.post("/v1/acquire", `{"wants":[{"provider":"p","permits":4},{"provider":"q"}],"max_wait":5}`)
		if w.Code != 422 || left(t, s, "q") != 2 {
			t.Errorf("%d %s, %d left", w.Code, w.Body, left(t, s, "q"))
		}
		if w := p.post("/v1/acquire", strings.Replace(both, `]}`, `],"max_wait":5}`, 1)); w.Code != 200 || time.Now().Nanosecond() != 0 {
			t.Errorf("at %v: %d %s", time.Now(), w.Code, w.Body)
		}
	})
}

// A call with wants is settled by a number for each of them.
func TestWantsAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOfTwo(t)
		p := newProcess(t, s, "one")
		g := grantOf(t, p.post("/v1/acquire", `{"wants":[{"provider":"p","permits":2},{"provider":"q","permits":3}],"settle_within":0}`))
		path := "/v1/permits/" + g.ID + "/settle"
		for body, want := range map[string]string{`{"used":2}`: "used has 1 numbers: must have 2", `{"used":[1,-4]}`: "used is -4: must be from 0 to 1000000000000", `{"used":"all"}`: `used: \"all\" given, must be a whole number from 0 to 1000000000000, or a list of them`, `{"used":[1,1e30]}`: "used: 1e30 given, must be a whole number from 0 to 1000000000000, or a list of them"} {
			if w := p.post(path, body); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %d %s", body, w.Code, w.Body)
			}
		}
		if w := p.post(path, `{"used":[2,1]}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if p, q := left(t, s, "p"), left(t, s, "q"); p != 1 || q != 2 {
			t.Errorf("%d and %d are left, want 1 and 2", p, q)
		}
	})
}
