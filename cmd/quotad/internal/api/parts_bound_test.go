package api

import (
	"context"
	"errors"
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

// Processes that come and go leave nothing behind: neither under a limit that allows nothing,
// nor in a window that lasts for days.
func TestPartsForgetProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []quota.Limit{{Permits: 0, Window: time.Second}, {Permits: 1e6, Window: 24 * time.Hour}} {
			s := serverOf(t, consumer.Fixed(quota.Policy{Limits: []quota.Limit{limit}}), roomy)
			for n := range 100 {
				p := newProcess(t, s, fmt.Sprint("short-lived ", n))
				p.post("/v1/acquire", `{"provider":"p"}`)
				p.post("/v1/acquire", `{"provider":"p","max_wait":1}`)
				_ = p.c.Close()
			}
			if n := len(s.provider("p").parts.got); n > 0 {
				t.Errorf("limit %v: %d processes are remembered", limit, n)
			}
		}
	})
}

// BenchmarkParts has every active process call twice in a window.
func BenchmarkParts(b *testing.B) {
	const processes = 2048
	o := newProvider()
	for n := range processes {
		o.seen(fair.Client{User: "user", Process: fmt.Sprint(n)})
	}
	for b.Loop() {
		o.parts.free, o.parts.all = time.Now().Add(time.Hour), 1e6
		clear(o.parts.got)
		o.parts.use = nil
		for n := range processes {
			p := &part{provider: o, client: fair.Client{User: "user", Process: fmt.Sprint(n)}}
			o.parts.got[p.client] = 1
			p.early(1)
		}
	}
}

// Permits that are given back count for no part: neither for that of their process, nor in
// the parts of the next window.
func TestPermitsGivenBackCountForNoPart(t *testing.T) {
	for name, give := range map[string]func(process){
		"settled": func(p process) {
			g := grantOf(t, p.post("/v1/acquire", `{"provider":"p","permits":4,"settle_within":1}`))
			p.post("/v1/permits/"+g.ID+"/settle", `{"used":0}`)
		},
		"a call that another provider refused": func(p process) {
			if w := p.post("/v1/acquire", `{"wants":[{"provider":"p","permits":4},{"provider":"q","permits":9}]}`); w.Code != 429 {
				t.Error(w.Body)
			}
		},
		"undelivered": func(p process) {
			w := gone{httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(context.WithValue(t.Context(), connectionKey{}, p.c), "POST", "/v1/acquire", strings.NewReader(`{"provider":"p","permits":4}`))
			r.Header.Set("Content-Type", "application/json")
			p.s.Handler.ServeHTTP(w, r)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newServer(t, 10, roomy)
			quick, slow := newProcess(t, s, "quick"), newProcess(t, s, "slow")
			slow.post("/v1/acquire", `{"provider":"q","permits":5}`)
			slow.post("/v1/acquire", `{"provider":"p"}`)
			for range 10 {
				give(quick)
			}
			o := &s.provider("p").parts
			if n := o.got[quick.c.Client()]; n != 0 || o.sum != 1 {
				t.Errorf("%s: %d of its part are taken, %d of all", name, n, o.sum)
			}
		})
	}
}

// gone is a client that has gone when its answer is sent.
type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, errors.New("gone") }

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
