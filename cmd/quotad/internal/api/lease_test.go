package api

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

type granted struct {
	Lease     string
	Permits   int64
	ExpiresIn float64 `json:"expires_in"`
}

func grantOf(t *testing.T, w *httptest.ResponseRecorder) (g granted) {
	t.Helper()
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLeaseIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		time.Sleep(250 * time.Millisecond)
		g := grantOf(t, one.post("/v1/leases", `{"provider":"p","permits":500}`))
		if g.Permits != 100 || g.ExpiresIn != 0.75 || g.Lease == "" {
			t.Fatalf("%+v", g)
		}
		back := "/v1/leases/" + g.Lease + "/return"
		for _, test := range []struct {
			by     process
			body   string
			status int
			want   string
		}{
			{two, `{"used":1}`, 404, "this process has no such lease"},
			{one, `{}`, 400, `used is missing: send such as {\"used\": 3}`},
			{one, `{"used":-1}`, 400, "used is -1: must be from 0 to 100, the permits of the lease"},
			{one, `{"used":101}`, 400, "used is 101: must be from 0 to 100, the permits of the lease"},
			{one, `{"used":30}`, 200, `{"returned":70}`},
			{one, `{"used":30}`, 404, "this process has no such lease"},
		} {
			if w := test.by.post(back, test.body); w.Code != test.status || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("%s: %d %s", test.body, w.Code, w.Body)
			}
		}
		// What was used stays used.
		if w := two.post("/v1/acquire", `{"provider":"p","permits":71}`); w.Code != 429 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := two.post("/v1/acquire", `{"provider":"p","permits":70}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A lease ends with the window of its permits: nothing can be given back after, and the
// next window is whole.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		p := newProcess(t, s, "one")
		time.Sleep(990 * time.Millisecond)
		g := grantOf(t, p.post("/v1/leases", `{"provider":"p","permits":100}`))
		if g.ExpiresIn > 0.010 {
			t.Fatalf("%+v", g)
		}
		_ = p.c.Close() // the process dies
		time.Sleep(15 * time.Millisecond)
		if clients, open, held := count(t, s); clients != 0 || open != 0 || held != 0 {
			t.Errorf("%v clients, %v connections, %v permits", clients, open, held)
		}
		p = newProcess(t, s, "one")
		if w := p.post("/v1/leases/"+g.Lease+"/return", `{"used":0}`); w.Code != 404 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if next := grantOf(t, p.post("/v1/leases", `{"provider":"p","permits":500}`)); next.Permits != 100 {
			t.Errorf("%+v", next)
		}
	})
}

// A process leases at most its part of the share.
func TestLeasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, limits{connections: 100, perClient: 3})
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		two.post("/v1/acquire", `{"provider":"p"}`) // so it is active
		if g := grantOf(t, one.post("/v1/leases", `{"provider":"p","permits":80}`)); g.Permits != 50 {
			t.Errorf("%+v", g)
		}
		w := one.post("/v1/leases", `{"provider":"p","permits":1}`)
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "one holds 50 leased permits of p, its part of this host's share: use or return them") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for range 3 {
			grantOf(t, two.post("/v1/leases", `{"provider":"p","permits":2}`))
		}
		if w := two.post("/v1/leases", `{"provider":"p"}`); w.Code != 429 || !strings.Contains(w.Body.String(), "two has 3 leases, which is the most") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(3 * time.Second) // the other is idle by now
		if g := grantOf(t, one.post("/v1/leases", `{"provider":"p","permits":80}`)); g.Permits != 80 {
			t.Errorf("%+v", g)
		}
	})
}

// Users that called lately have equal parts, whatever the number of their processes.
func TestUsersLeaseEqualParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		for n := range 4 {
			process{s, connected(t, s, fair.Client{User: "many", Process: fmt.Sprint("of many ", n)})}.post("/v1/leases", `{"provider":"p"}`)
		}
		time.Sleep(1500 * time.Millisecond) // the first leases have ended
		one := process{s, connected(t, s, fair.Client{User: "one", Process: "one"})}
		if g := grantOf(t, one.post("/v1/leases", `{"provider":"p","permits":80}`)); g.Permits != 50 {
			t.Errorf("the user with one process: %+v", g)
		}
		many := process{s, connected(t, s, fair.Client{User: "many", Process: "of many 0"})}
		if g := grantOf(t, many.post("/v1/leases", `{"provider":"p","permits":80}`)); g.Permits != 12 {
			t.Errorf("one of four: %+v", g)
		}
	})
}

// A lease of fewer permits than were asked for holds no more than these.
func TestLeaseOfTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":70}`)
		g := grantOf(t, p.post("/v1/leases", `{"provider":"p","permits":100}`))
		if _, _, held := count(t, s); g.Permits != 30 || held != 30 {
			t.Errorf("%+v, %v held", g, held)
		}
		if w := p.post("/v1/leases", `{"provider":"p","permits":100}`); w.Code != 429 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if _, _, held := count(t, s); held != 30 {
			t.Errorf("%v held after a refusal", held)
		}
	})
}

// A lease may wait for the next window.
func TestLeaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":10}`)
		if g := grantOf(t, p.post("/v1/leases", `{"provider":"p","permits":5,"max_wait":2}`)); g.Permits != 5 || g.ExpiresIn != 2 {
			t.Errorf("%+v", g)
		}
		if w := p.post("/v1/leases", `{"provider":"p","permits":5,"max_wait":0.2}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		w := p.post("/v1/leases", `{"provider":"p","permits":5,"max_wait":0.2}`)
		if w.Code != 429 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A lease that waits while the share becomes smaller than it is to be asked for again.
func TestLeaseOfALowerShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":10}`)
		time.AfterFunc(100*time.Millisecond, func() {
			if err := source.Set(quota.Policy{Limits: []quota.Limit{{Permits: 4, Window: time.Second}}}); err != nil {
				t.Error(err)
			}
		})
		if w := p.post("/v1/leases", `{"provider":"p","permits":10,"max_wait":5}`); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if g := grantOf(t, p.post("/v1/leases", `{"provider":"p","permits":10,"max_wait":5}`)); g.Permits != 4 {
			t.Errorf("%+v", g)
		}
		if _, _, held := count(t, s); held != 4 {
			t.Errorf("%v permits are held", held)
		}
	})
}

// A connection that ends while its first request begins is not counted for ever.
func TestAClosedConnectionIsNotCounted(t *testing.T) {
	s, _ := newServer(t, 1, roomy)
	c := connected(t, s, fair.Client{User: "TCP"})
	_, _ = c.Close(), c.Close()
	if err := c.Identify("late"); err == nil {
		t.Error("it has a client")
	}
	if clients, open, _ := count(t, s); clients != 0 || open != 0 {
		t.Errorf("%v clients, %v connections", clients, open)
	}
}

// Under a long limit alone a process leases at most its part of it, and one that holds that
// tries again soon.
func TestALeaseOfALongLimitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Hour}}}), roomy)
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		two.post("/v1/acquire", `{"provider":"p"}`)
		if g := grantOf(t, one.post("/v1/leases", `{"provider":"p","permits":80}`)); g.Permits != 50 {
			t.Errorf("%d permits of 100 for one of two", g.Permits)
		}
		if w := one.post("/v1/leases", `{"provider":"p"}`); w.Code != 429 || w.Header().Get("Retry-After") != "1" || strings.Contains(fmt.Sprint(w.Header()), "000000") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}
