package api

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// inFlight runs f with a server whose providers admit three calls at once, of 10 minutes at most.
func inFlight(t *testing.T, l limits, f func(t *testing.T, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		limits, err := quota.ParseLimits("3 inflight hold=10m")
		if err != nil {
			t.Fatal(err)
		}
		f(t, serverOf(t, consumer.Fixed(quota.Policy{Limits: limits}), l))
	})
}

// underWay fails the test unless so many calls of p are.
func underWay(t *testing.T, s *Server, want int64) {
	t.Helper()
	st, _ := s.host.Status("p")
	if n := st.Limits[0].Used; n != want {
		t.Errorf("%d calls are under way, want %d", n, want)
	}
}

// A call is told by which ID it ends, and for how long it may last. It ends by DELETE, once, from its own
// process; by a settlement; or at the end of its time, as that of a process that has died.
func TestACallInFlightEnds(t *testing.T) {
	inFlight(t, roomy, func(t *testing.T, s *Server) {
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		take := func(p process, body string) (id string) {
			t.Helper()
			var got struct {
				ID        string
				EndsIn    float64 `json:"ends_in"`
				ExpiresIn float64 `json:"expires_in"`
			}
			w := p.post("/v1/acquire", body)
			if err := json.Unmarshal(w.Body.Bytes(), &got); w.Code != 200 || err != nil {
				t.Fatal(w.Code, w.Body, err)
			}
			if got.ID == "" || got.EndsIn < 600 || got.EndsIn > 750 || got.ExpiresIn > got.EndsIn {
				t.Errorf("%s", w.Body)
			}
			return got.ID
		}
		end := func(p process, id string, status int) {
			t.Helper()
			if w := p.do(t.Context(), "DELETE", "/v1/calls/"+id, ""); w.Code != status {
				t.Errorf("%d %s, want %d", w.Code, w.Body, status)
			}
		}
		id := take(one, `{"provider":"p"}`)
		if w := one.do(t.Context(), "GET", "/v1/providers/p", ""); !strings.Contains(w.Body.String(), `"limits":[{"limit":"3 inflight hold=10m","share":3,"used":1,"left":2,"remaining":2}]`) {
			t.Errorf("%s", w.Body)
		}
		all := take(one, `{"wants":[{"provider":"p","permits":2},{"provider":"q"}]}`)
		if w := two.post("/v1/acquire", `{"provider":"p"}`); w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "all of 3 inflight hold=10m are taken") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		end(two, id, 404)
		underWay(t, s, 3)
		end(one, id, 200)
		end(one, id, 404)
		underWay(t, s, 2)
		end(one, all, 200)
		underWay(t, s, 0)

		batch := take(one, `{"provider":"p","permits":3,"partial":true}`)
		if w := one.post("/v1/permits/"+batch+"/settle", `{"used":1}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		underWay(t, s, 0)

		id = take(one, `{"provider":"p","permits":2,"settle_within":1}`)
		_ = one.c.Close() // the process dies
		time.Sleep(10*time.Minute - 1)
		underWay(t, s, 2)
		time.Sleep(2*time.Minute + 31*time.Second)
		underWay(t, s, 0)
		if st, _ := s.host.Status("p"); st.Forgotten != 2 {
			t.Errorf("%d calls are counted as forgotten", st.Forgotten)
		}
		end(newProcess(t, s, "one"), id, 404)
		if clients, _ := count(t, s); clients != 2 {
			t.Errorf("%v clients", clients)
		}
	})
}

// A client has so many calls, those of all its connections together. What it gets no ID for it does not keep.
func TestCallsInFlightAreBounded(t *testing.T) {
	inFlight(t, limits{connections: 100, perClient: 2}, func(t *testing.T, s *Server) {
		p := newProcess(t, s, "one")
		first := grantOf(t, p.post("/v1/acquire", `{"provider":"p"}`))
		grantOf(t, newProcess(t, s, "one").post("/v1/acquire", `{"provider":"p"}`))
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 429 || !strings.Contains(w.Body.String(), "one has 2 IDs, which is the most (--client-connections): settle some, or end calls") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		underWay(t, s, 2)
		if w := p.do(t.Context(), "DELETE", "/v1/calls/"+first.ID, ""); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		grantOf(t, p.post("/v1/acquire", `{"provider":"p"}`))
		underWay(t, s, 2)
	})
}

// A client that leaves before its answer has no call.
func TestACallInFlightThatNobodyHears(t *testing.T) {
	inFlight(t, roomy, func(t *testing.T, s *Server) {
		p := newProcess(t, s, "one")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.do(ctx, "POST", "/v1/acquire", `{"provider":"p"}`)
		underWay(t, s, 0)
		if clients, _ := count(t, s); clients != 1 {
			t.Errorf("%v clients", clients)
		}
	})
}

// Beside a limit of a second a call is known for as long as it may last.
func TestACallInFlightBesideRequests(t *testing.T) {
	inFlight(t, roomy, func(t *testing.T, s *Server) {
		flight := s.host.Opened("p").TryTake(1)
		limiter, err := consumer.Open(t.Context(), fixed(100), "requests", consumer.Options{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		g := &grant{permits: []consumer.Permit{limiter.TryTake(1), flight}}
		if d := s.left(g.permits); d > time.Second {
			t.Errorf("they begin within %v", d)
		}
		if d := s.known(g, time.Minute); d < 10*time.Minute {
			t.Errorf("known for %v", d)
		}
		g.done()
		underWay(t, s, 0)
	})
}

// A batch in flight that finds no place waits for one.
func TestABatchInFlightWaitsForOne(t *testing.T) {
	inFlight(t, roomy, func(t *testing.T, s *Server) {
		calls := [3]consumer.Permit{}
		for i := range calls {
			calls[i] = s.host.Opened("p").TryTake(1)
		}
		time.AfterFunc(time.Second, calls[1].Done)
		g := grantOf(t, newProcess(t, s, "one").post("/v1/acquire", `{"provider":"p","permits":3,"partial":true,"max_wait":5}`))
		if g.Permits != 1 {
			t.Errorf("%d permits", g.Permits)
		}
		underWay(t, s, 3)
	})
}
