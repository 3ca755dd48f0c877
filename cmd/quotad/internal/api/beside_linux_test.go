package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// In an update a client settles and ends what it has by a connection to either quotad: the one that gave the permits
// books it. What the one refuses, the other passes on. An ID that neither knows is of nobody, and so is one whose quotad
// has ended.
func TestTheQuotadsOfASocketAnswerForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "quotad.sock")
	limits, err := quota.ParseLimits("3 inflight hold=10m")
	if err != nil {
		t.Fatal(err)
	}
	next := func() (*Server, caller, *http.Client) {
		h := newHost(t, consumer.Fixed(quota.Policy{Limits: limits}))
		s, err := (&Flags{Group: new(string), socket: path, limits: roomy}).Listen(h, quiet)
		if err != nil {
			t.Fatal(err)
		}
		return serve(t, s.(*Server)), dial(t, path), listen.Client(path, time.Minute)
	}
	first, toFirst, _ := next()
	_, _, _ = next() // is asked before the first one, and knows nothing
	last, toLast, client := next()
	take := func(c caller) string {
		t.Helper()
		var got granted
		c.send(t, "/v1/acquire", `{"provider":"p","max_wait":60}`)
		status, body := c.answer(t)
		if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil {
			t.Fatal(status, body, err)
		}
		return got.ID
	}
	settle := func(c caller, id, body string, want int) {
		t.Helper()
		c.send(t, "/v1/permits/"+id+"/settle", body)
		if status, body := c.answer(t); status != want || want == 404 && !strings.Contains(body, errNoGrant.Error()) {
			t.Errorf("%d %s, want %d", status, body, want)
		}
	}
	old := take(toFirst)
	settle(toLast, old, `{}`, 400)
	settle(toLast, old, `{"used":1}`, 200)
	settle(toLast, old, `{"used":1}`, 404)
	settle(toFirst, take(toLast), `{"used":1}`, 200)
	underWay(t, first, 0)
	underWay(t, last, 0)

	old = take(toFirst)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://quotad/v1/calls/"+old, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Error(answer.Status)
	}
	underWay(t, first, 0)

	old = take(toFirst)
	if err := first.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	settle(toLast, old, `{"used":1}`, 404)
}

// A quotad hands on for its clients, which it names. Nobody else may: a process of another user, or a holder of a
// certificate, is itself whatever it names.
func TestWhoHandsOn(t *testing.T) {
	s, _ := newServer(t, 100, roomy)
	one := newProcess(t, s, "one")
	user := fmt.Sprintf(" of user %d", os.Geteuid())
	for _, c := range []struct {
		by, names string
		status    int
	}{
		{"process 7" + user, "two", 404},
		{"process 7" + user + "1", "one", 404},
		{"certificate CN=x" + user, "one", 404},
		{"process 7" + user, "one", 200},
	} {
		id := grantOf(t, one.post("/v1/acquire", `{"provider":"p","max_wait":60,"settle_within":60}`)).ID
		p := newProcess(t, s, c.by)
		r := p.request(t.Context(), "POST", "/v1/permits/"+id+"/settle", `{"used":1}`)
		r.Header.Set(clientField, c.names)
		w := httptest.NewRecorder()
		if s.Handler.ServeHTTP(w, r); w.Code != c.status {
			t.Errorf("%s for %s: %d %s, want %d", c.by, c.names, w.Code, w.Body, c.status)
		}
	}
}
