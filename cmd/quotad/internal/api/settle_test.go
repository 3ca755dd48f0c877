package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

type granted struct {
	ID        string
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

func TestPermitsAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		time.Sleep(250 * time.Millisecond)
		g := grantOf(t, one.post("/v1/acquire", `{"partial":true,"provider":"p","permits":500}`))
		if g.Permits != 100 || g.ExpiresIn != 0.75 || g.ID == "" {
			t.Fatalf("%+v", g)
		}
		back := "/v1/permits/" + g.ID + "/settle"
		for _, test := range []struct {
			by     process
			body   string
			status int
			want   string
		}{
			{two, `{"used":1}`, 404, "this process has no permits of this ID"},
			{one, `{}`, 400, `used is missing: send such as {\"used\": 3}`},
			{one, `{"used":null}`, 400, "used: null given, must be a whole number from 0 to 1000000000000, or a list of them"},
			{one, `{"used":[null]}`, 400, "used: null given, must be a whole number from 0 to 1000000000000, or a list of them"},
			{one, `{"used":-1}`, 400, "used is -1: must be from 0 to 1000000000000"},
			{one, `{"used":[30,1]}`, 400, "used has 2 numbers: must have 1, one for each want"},
			{one, `{"used":30}`, 200, `{}`},
			{one, `{"used":30}`, 404, "this process has no permits of this ID"},
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

// The ID of a batch ends with the window of its permits: nothing can be given back after, and
// the next window is whole.
func TestABatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		p := newProcess(t, s, "one")
		time.Sleep(990 * time.Millisecond)
		g := grantOf(t, p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":100}`))
		if g.ExpiresIn > 0.010 {
			t.Fatalf("%+v", g)
		}
		_ = p.c.Close() // the process dies
		time.Sleep(15 * time.Millisecond)
		if clients, open := count(t, s); clients != 0 || open != 0 {
			t.Errorf("%v clients, %v connections", clients, open)
		}
		p = newProcess(t, s, "one")
		if w := p.post("/v1/permits/"+g.ID+"/settle", `{"used":0}`); w.Code != 404 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if next := grantOf(t, p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":500}`)); next.Permits != 100 {
			t.Errorf("%+v", next)
		}
	})
}

// A batch has what there is, up to this host's share: whoever asks first has it.
func TestABatchHasWhatThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		one, two := newProcess(t, s, "one"), newProcess(t, s, "two")
		for _, test := range []struct {
			by    process
			asks  int
			wants int64
		}{{one, 80, 80}, {two, 80, 20}} {
			if g := grantOf(t, test.by.post("/v1/acquire", fmt.Sprintf(`{"partial":true,"provider":"p","permits":%d}`, test.asks))); g.Permits != test.wants {
				t.Errorf("of %d: %+v", test.asks, g)
			}
		}
		for _, asks := range []int{1, 500} { // not one is there
			w := one.post("/v1/acquire", fmt.Sprintf(`{"partial":true,"provider":"p","permits":%d}`, asks))
			if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "p: no permit: the limit of 100/s is used up; next at ") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if g := grantOf(t, one.post("/v1/acquire", `{"partial":true,"provider":"p","permits":500,"max_wait":1}`)); g.Permits != 100 {
			t.Errorf("%+v", g)
		}
	})
}

// A batch may wait for the next window.
func TestABatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":10}`)
		if g := grantOf(t, p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":5,"max_wait":2}`)); g.Permits != 5 || g.ExpiresIn != 2 {
			t.Errorf("%+v", g)
		}
		if w := p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":5,"max_wait":0.2}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		w := p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":5,"max_wait":0.2}`)
		if w.Code != 429 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A batch that waits while the share becomes smaller than it is to be asked for again.
func TestABatchOfALowerShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":10}`)
		time.AfterFunc(100*time.Millisecond, func() {
			if err := source.Set(quota.Policy{Limits: []quota.Limit{{Permits: 4, Window: time.Second}}}); err != nil {
				t.Error(err)
			}
		})
		if w := p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":10,"max_wait":5}`); w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if g := grantOf(t, p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":10,"max_wait":5}`)); g.Permits != 4 {
			t.Errorf("%+v", g)
		}
	})
}

// A connection that ends while its first request begins is not counted for ever.
func TestAClosedConnectionIsNotCounted(t *testing.T) {
	s, _ := newServer(t, 1, roomy)
	c := connected(t, s, "")
	_, _ = c.Close(), c.Close()
	if err := c.Identify("late"); err == nil {
		t.Error("it has a client")
	}
	if clients, open := count(t, s); clients != 0 || open != 0 {
		t.Errorf("%v clients, %v connections", clients, open)
	}
}

// Under a long limit alone a batch can be more than the share: more is taken when it is wanted.
func TestABatchOfALongLimitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: time.Hour}}}), roomy)
		one := newProcess(t, s, "one")
		for _, want := range []int64{80, 20} {
			if g := grantOf(t, one.post("/v1/acquire", `{"partial":true,"provider":"p","permits":80}`)); g.Permits != want {
				t.Errorf("%d permits, want %d", g.Permits, want)
			}
		}
		if w := one.post("/v1/acquire", `{"partial":true,"provider":"p"}`); w.Code != 429 || strings.Contains(fmt.Sprint(w.Header()), "000000") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// A cost that is known late is settled by the ID: the cost above the permits is a debt that
// this host pays, and the ID lives for settle_within.
func TestACostIsSettledLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, roomy)
		p := newProcess(t, s, "one")
		if g := grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":20}`)); g.ID != "" {
			t.Errorf("a call that asks for no ID has %q", g.ID)
		}
		g := grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":20,"settle_within":90}`))
		late := grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":20,"settle_within":90}`))
		if g.ID == "" || g.ID == late.ID {
			t.Errorf("%+v, %+v", g, late)
		}
		time.Sleep(89 * time.Second)
		if w := p.post("/v1/permits/"+g.ID+"/settle", `{"used":90}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := p.post("/v1/acquire", `{"provider":"p","permits":31}`); w.Code != 429 {
			t.Errorf("with a debt of 70 of 100: %d %s", w.Code, w.Body)
		}
		if w := p.post("/v1/acquire", `{"provider":"p","permits":30}`); w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		synctest.Wait() // the ID ends at this moment
		if w := p.post("/v1/permits/"+late.ID+"/settle", `{"used":0}`); w.Code != 404 {
			t.Errorf("after settle_within: %d %s", w.Code, w.Body)
		}
		g = grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":20,"settle_within":90}`))
		if w := p.post("/v1/permits/"+g.ID+"/settle", `{"used":1001}`); w.Code != 422 || !strings.Contains(w.Body.String(), "p: settle: 1000 permits are booked of a cost of 1001, which is above ten windows of 100/s: is the unit right?") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 429 || !strings.Contains(w.Body.String(), `"title":"The quota is reserved for earlier requests"`) || !strings.Contains(w.Body.String(), "900 of that are still to be paid, by about ") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// An ID can end without a settlement: then the reservation stands.
func TestAReservationStandsWithoutItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, limits{connections: 100, perClient: 1})
		p := newProcess(t, s, "one")
		for range 4 {
			g := grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":20,"settle_within":90}`))
			if w := p.do(t.Context(), "DELETE", "/v1/calls/"+g.ID, ""); w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if w := p.post("/v1/permits/"+g.ID+"/settle", `{"used":0}`); w.Code != 404 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if w := p.post("/v1/acquire", `{"provider":"p","permits":21}`); w.Code != 429 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A process has at most so many IDs, also where it holds no batch.
func TestIDsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 100, limits{connections: 100, perClient: 3})
		p := newProcess(t, s, "one")
		for range 3 {
			grantOf(t, p.post("/v1/acquire", `{"provider":"p","settle_within":60}`))
		}
		w := p.post("/v1/acquire", `{"provider":"p","settle_within":60}`)
		if w.Code != 429 || !strings.Contains(w.Body.String(), "one has 3 IDs, which is the most (--client-connections): settle some") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		grantOf(t, p.post("/v1/acquire", `{"provider":"p"}`))
	})
}

// Calls that wait for an ID count, and no longer when they are refused.
func TestWaitingCallsHaveNoMoreIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 5, limits{connections: 100, perClient: 3})
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p","permits":5}`)
		for range 5 {
			p.post("/v1/acquire", `{"provider":"p","settle_within":60}`) // refused
			go p.post("/v1/acquire", `{"provider":"p","max_wait":10,"settle_within":60}`)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s.clients.mu.Lock()
		n, grants := s.clients.ids["one"], len(s.clients.grants)
		s.clients.mu.Unlock()
		if n != 3 || grants != 3 {
			t.Errorf("%d IDs, of at most 3", n)
		}
		time.Sleep(70 * time.Second)
		synctest.Wait()
		s.clients.mu.Lock()
		defer s.clients.mu.Unlock()
		if n := len(s.clients.ids); n != 0 {
			t.Errorf("%d processes with IDs at the end", n)
		}
	})
}

// A provider whose permits can still be settled stays open.
func TestSettlingKeepsAProviderOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * time.Second) // so that idle providers are closed 30 s after a minute begins
		minute := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: time.Minute}}})
		h, err := host.New(t.Context(), minute, host.Options{Known: known, Max: 1, Idle: 2 * time.Minute, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		s := build(h, roomy, quiet)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p"}`)
		g := grantOf(t, p.post("/v1/acquire", `{"provider":"p","max_wait":60,"settle_within":120}`))
		time.Sleep(119 * time.Second)
		if w := p.post("/v1/permits/"+g.ID+"/settle", `{"used":1}`); w.Code != 200 || h.Opened("p") == nil {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if err := errors.Join(s.Shutdown(t.Context()), h.Close()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute) // for what paces lookups
	})
}
