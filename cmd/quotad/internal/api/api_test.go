package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/host"
	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/ratefields"
	"github.com/quotient-limiter/quotient/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// known knows the provider p; e is one of which etcd does not answer, and f one that it
// does not let read.
func known(_ context.Context, name string) error {
	switch name {
	case "p", "q":
		return nil
	case "slow0", "slow1", "slow2":
		time.Sleep(2 * time.Second)
		return nil
	case "e":
		return errors.New("etcd did not answer")
	case "f":
		return fmt.Errorf("%w f: not permitted", host.ErrForbidden)
	}
	return host.Unknown(name)
}

// newServer returns a server with a limit of so many permits a second, and its source.
func newServer(t *testing.T, permits int64, l limits) (*Server, *consumer.FixedSource) {
	t.Helper()
	source := fixed(permits)
	return serverOf(t, source, l), source
}

func fixed(permits int64) *consumer.FixedSource {
	return consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}})
}

func serverOf(t *testing.T, source consumer.Source, l limits) *Server {
	t.Helper()
	s := build(newHost(t, source), l, quiet)
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

var quiet = slog.New(slog.DiscardHandler)

func newHost(t *testing.T, source consumer.Source) *host.Host {
	t.Helper()
	h, err := host.New(t.Context(), source, host.Options{Known: known, Keep: []string{"p"}, Max: 3, Idle: time.Hour, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// count returns what the metrics tell of the clients.
func count(t *testing.T, s *Server) (clients, connections float64) {
	t.Helper()
	families, err := s.host.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	gauges := map[string]float64{}
	for _, f := range families {
		gauges[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return gauges["quotad_clients"], gauges["quotad_connections"]
}

// process is a client that needs no socket.
type process struct {
	s *Server
	c *listen.Conn
}

func newProcess(t *testing.T, s *Server, name string) process {
	t.Helper()
	return process{s, connected(t, s, name)}
}

// connected returns a connection of a client.
func connected(t *testing.T, s *Server, client string) *listen.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	conns := make(chan net.Conn, 1)
	conns <- theirs
	l := s.accept(pipe{conns}, func(net.Conn) (string, error) { return client, nil })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*listen.Conn)
}

// do sends a request, and returns its answer.
func (p process) do(ctx context.Context, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.s.Handler.ServeHTTP(w, p.request(ctx, method, path, body))
	return w
}

func (p process) request(ctx context.Context, method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, connectionKey{}, p.c), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (p process) post(path, body string) *httptest.ResponseRecorder {
	return p.do(context.Background(), "POST", path, body)
}

var roomy = limits{connections: 1000, perClient: 100}

// A critical call is served before those that waited longer.
func TestCallsHaveClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p"}`)
		var mu sync.Mutex
		var order []string
		for _, class := range []string{"sheddable", "default", "default", "critical"} {
			go func() {
				w := newProcess(t, s, "of "+class).post("/v1/acquire", `{"provider":"p","max_wait":30,"class":"`+class+`"}`)
				mu.Lock()
				defer mu.Unlock()
				if w.Code == 200 {
					order = append(order, class)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"critical", "default", "default", "sheddable"}, order); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if w := p.post("/v1/acquire", `{"provider":"p","class":"gold"}`); w.Code != 400 || !strings.Contains(w.Body.String(), `class is \"gold\": must be critical, default or sheddable`) {
			t.Errorf("an unknown class: %d %s", w.Code, w.Body)
		}
		l, _ := s.host.Limiter(t.Context(), "p")
		if st := l.Status(); st.IssuedBy[consumer.Critical] != 1 || st.IssuedBy[consumer.Sheddable] != 1 {
			t.Errorf("issued by class: %v", st.IssuedBy)
		}
	})
}

// A call counts for its label with its class, and the state of a provider has the busiest
// labels.
func TestCallsHaveLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 5, roomy)
		p := newProcess(t, s, "one")
		p.do(t.Context(), "GET", "/v1/providers/p", "")
		for range 10 {
			p.post("/v1/acquire", `{"provider":"p","permits":3,"label":"reindex","class":"critical"}`)
			p.post("/v1/acquire", `{"wants":[{"provider":"p","permits":3}],"label":"reindex"}`)
			p.post("/v1/acquire", `{"provider":"p","label":""}`)
			time.Sleep(time.Second)
		}
		w := p.do(t.Context(), "GET", "/v1/providers/p", "")
		if want := `"busiest_labels":[{"name":"reindex","issued":3,"refused":3},{"name":"","issued":1,"refused":0}]`; !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s, want %s", w.Body, want)
		}
		l, _ := s.host.Limiter(t.Context(), "p")
		if st := l.Status(); st.IssuedBy[consumer.Critical] != 30 {
			t.Errorf("issued by class: %v", st.IssuedBy)
		}
	})
}

// What a client is told that asks for something wrong.
func TestBadInput(t *testing.T) {
	const (
		blank = `{"type":"about:blank","title":"%s","status":%d,"detail":"%s"}`
		later = `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Requests cannot be admitted at present","status":503,"detail":"%s","retry_after":1}`
		like  = `: send JSON such as {\"provider\": \"payments/charge\", \"permits\": 1, \"max_wait\": 0.2}`
	)
	bad := func(detail string) string { return fmt.Sprintf(blank, "Bad Request", 400, detail) }
	for _, test := range []struct {
		name, body string
		status     int
		want       string
		retry      string
	}{
		{"nothing", ``, 400, bad(`the body is not as expected (it is empty)` + like), ""},
		{"no JSON", `provider=p`, 400, bad(`the body is not as expected (invalid character 'p' looking for beginning of value)` + like), ""},
		{"half of it", `{"provider":"p"`, 400, bad(`the body is not as expected (unexpected EOF)` + like), ""},
		{"two objects", `{"provider":"p"}{}`, 400, bad(`the body is not as expected (something follows the object)` + like), ""},
		{"a list", `[]`, 400, bad(`the body is not as expected (it is a JSON array)` + like), ""},
		{"an unknown field", `{"provider":"p","permit":1}`, 400, bad(`the body is not as expected (unknown field \"permit\"; did you mean permits?)` + like), ""},
		{"a field that is near none", `{"provider":"p","weight":1}`, 400, bad(`the body is not as expected (unknown field \"weight\")` + like), ""},
		{"text for a number", `{"provider":"p","permits":"1"}`, 400, bad(`permits: \"1\" given, must be a whole number from 1 to 1000000000000`), ""},
		{"nothing for a number", `{"provider":"p","permits":null}`, 400, bad(`permits: null given, must be a whole number from 1 to 1000000000000`), ""},
		{"nothing for a number of a want", `{"wants":[{"provider":"p","permits":null}]}`, 400, bad(`wants.permits: null given, must be a whole number from 1 to 1000000000000`), ""},
		{"half a permit", `{"provider":"p","permits":0.5}`, 400, bad(`permits: 0.5 given, must be a whole number from 1 to 1000000000000`), ""},
		{"a wait that no number holds", `{"provider":"p","max_wait":1e400}`, 400, bad(`max_wait: 1e400 given, must be a number of seconds from 0 to 60`), ""},
		{"one want in place of a list", `{"wants":{"provider":"p"}}`, 400, bad(`wants: object given, must be a list, such as [{\"provider\": \"payments/charge\", \"permits\": 1}]`), ""},
		{"a name in place of a want", `{"wants":["p"]}`, 400, bad(`wants: string given, must be an object, such as {\"provider\": \"payments/charge\", \"permits\": 1}`), ""},
		{"text for a number of a want", `{"wants":[{"provider":"p","permits":"1"}]}`, 400, bad(`wants.permits: \"1\" given, must be a whole number from 1 to 1000000000000`), ""},
		{"a number for a name", `{"provider":1}`, 400, bad(`provider: number given, must be a text`), ""},
		{"a word for yes", `{"provider":"p","partial":"yes"}`, 400, bad(`partial: string given, must be true or false`), ""},
		{"no provider", `{}`, 400, bad(`provider \"\" is empty; write a path like \"payments/charge\"`), ""},
		{"a path that leaves", `{"provider":"../p"}`, 400, bad(`provider \"../p\" has a part \"..\"; write a path like \"payments/charge\"`), ""},
		{"no permits", `{"provider":"p","permits":0}`, 400, bad(`permits is 0: must be from 1 to 1000000000000`), ""},
		{"fewer than none", `{"provider":"p","permits":-1}`, 400, bad(`permits is -1: must be from 1 to 1000000000000`), ""},
		{"more than can be written", `{"provider":"p","permits":1000000000001}`, 400, bad(`permits is 1000000000001: must be from 1 to 1000000000000`), ""},
		{"a wait into the past", `{"provider":"p","max_wait":-0.1}`, 400, bad(`max_wait is -0.1: must be from 0 to 60 seconds`), ""},
		{"a wait too long", `{"provider":"p","max_wait":60.5}`, 400, bad(`max_wait is 60.5: must be from 0 to 60 seconds`), ""},
		{"an unknown class", `{"provider":"p","class":"gold"}`, 400, bad(`class is \"gold\": must be critical, default or sheddable`), ""},
		{"no label", `{"provider":"p","label":"` + strings.Repeat("l", 65) + `"}`, 400, bad(`label \"` + strings.Repeat("l", 64) + `\" has 65 bytes, more than the most, 64; write a name like reindex`), ""},
		{"no wants", `{"wants":[]}`, 400, bad(`wants has 0 entries: must be from 1 to 16`), ""},
		{"too many wants", `{"wants":[` + strings.Repeat(`{"provider":"p"},`, 16) + `{"provider":"p"}]}`, 400, bad(`wants has 17 entries: must be from 1 to 16`), ""},
		{"a want beside wants", `{"provider":"p","wants":[{"provider":"p"}]}`, 400, bad(`wants: provider, key and permits stand within it, not beside it`), ""},
		{"a want twice", `{"wants":[{"provider":"p","key":"a"},{"provider":"p","key":"a"}]}`, 400, bad(`wants has p twice with key \"a\": ask once for the sum`), ""},
		{"a part of wants", `{"partial":true,"wants":[{"provider":"p"}]}`, 400, bad(`partial: a call with wants takes all or nothing`), ""},
		{"a settlement too late", `{"provider":"p","settle_within":121}`, 400, bad(`settle_within is 121: must be from 0 to 120 seconds`), ""},
		{"a body too long", `{"provider":"` + strings.Repeat("p", maxBody) + `"}`, 413, fmt.Sprintf(blank, "Request Entity Too Large", 413, `the body has 4111 bytes, more than the most, 4096: make several calls`), ""},
		{"an unknown provider", `{"provider":"x"}`, 404, fmt.Sprintf(blank, "Not Found", 404, `no limit is set for \"x\": quota-admin set x LIMITS; quota-admin list shows all`), ""},
		{"a forbidden provider", `{"provider":"f"}`, 403, fmt.Sprintf(blank, "Forbidden", 403, `forbidden provider f: not permitted`), ""},
		{"etcd is away", `{"provider":"e"}`, 503, fmt.Sprintf(later, `etcd did not answer`), "1"},
		{"more than any share", `{"provider":"p","permits":11,"max_wait":5}`, 422, fmt.Sprintf(blank, "Unprocessable Entity", 422, `p: 11 permits asked for, the limit is 10/s: split the call, or take a batch (partial)`), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := newServer(t, 10, roomy)
				p := newProcess(t, s, "one")
				w := p.post("/v1/acquire", test.body)
				if got := strings.TrimSpace(w.Body.String()); w.Code != test.status || got != test.want {
					t.Errorf("%d %s\nwant %d %s", w.Code, got, test.status, test.want)
				}
				if retry := w.Header().Get("Retry-After"); retry != test.retry {
					t.Errorf("Retry-After %q, want %q", retry, test.retry)
				}
				time.Sleep(lookupPace)
			})
		})
	}
}

// A call for a provider that is not open waits for etcd no longer than for permits, and without a wait for openingWait,
// whoever else waits. Once etcd has answered, the provider is open for the next call.
func TestAnUnansweredQuestionIsNoWait(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := serverOf(t, consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}), roomy)
			p := newProcess(t, s, "one")
			var all sync.WaitGroup
			for n := range 30 { // about three providers, and each question takes etcd 2 s
				all.Go(func() {
					began := time.Now()
					w := p.post("/v1/acquire", fmt.Sprintf(`{"provider":"slow%d","max_wait":%v}`, n%3, wait.Seconds()))
					if took := time.Since(began); took > max(wait, openingWait) {
						t.Errorf("a call that waits for %v had its answer after %v: %s", wait, took, w.Body)
					}
					if wait == 0 && (w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "etcd has not said yet whether it has a limit: try again")) {
						t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
					}
				})
			}
			all.Wait()
			time.Sleep(6 * time.Second)
			if open := len(s.host.Statuses()); open != 3 { // with the one to keep; a host of the tests has no more
				t.Errorf("etcd has answered, and %d providers are open", open)
			}
			time.Sleep(lookupPace)
		})
	}
}

// lookupPace is longer than the time between two questions to etcd.
const lookupPace = time.Second

func TestWrongPathsAndMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		for _, test := range []struct {
			method, path string
			status       int
			want         string
		}{
			{"GET", "/v1/acquire", 405, `{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"\"/v1/acquire\": must be a POST, not a GET"}`},
			{"DELETE", "/v1/providers/x/y", 405, `{"type":"about:blank","title":"Method Not Allowed","status":405,"detail":"\"/v1/providers/x/y\": must be a GET, not a DELETE"}`},
			{"POST", "/v2/acquire", 404, `{"type":"about:blank","title":"Not Found","status":404,"detail":"there is no call \"/v2/acquire\": permits are at POST /v1/acquire, the state at GET /v1/providers"}`},
			{"GET", "/v1/providers/x", 404, `{"type":"about:blank","title":"Not Found","status":404,"detail":"provider \"x\" is not open on this host: its first call opens it"}`},
			{"POST", "/v1/permits/x/settle", 404, `{"type":"about:blank","title":"Not Found","status":404,"detail":"this process has no permits of this ID: they were settled or ended, their time is over, or another process got them (each curl is a process of its own), or a quotad that has ended"}`},
		} {
			if w := p.do(t.Context(), test.method, test.path, ""); w.Code != test.status || strings.TrimSpace(w.Body.String()) != test.want {
				t.Errorf("%s %s: %d %s", test.method, test.path, w.Code, w.Body)
			}
		}
		r := httptest.NewRequest(http.MethodPost, "/v1/acquire", strings.NewReader("{}")).WithContext(context.WithValue(t.Context(), connectionKey{}, p.c))
		r.Header.Set("Content-Type", "text/plain") // which a page of another site may send
		w := httptest.NewRecorder()
		s.Handler.ServeHTTP(w, r)
		if w.Code != 415 || !strings.Contains(w.Body.String(), `Content-Type is \"text/plain\": send application/json`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		for length, want := range map[int64]string{-1: "the length of the body is not known: send Content-Length", 9: "the body is shorter than Content-Length"} {
			r := httptest.NewRequest(http.MethodPost, "/v1/acquire", strings.NewReader("{}")).WithContext(context.WithValue(t.Context(), connectionKey{}, p.c))
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = length
			w := httptest.NewRecorder()
			s.Handler.ServeHTTP(w, r)
			if w.Code/100 != 4 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
	})
}

func TestGrantAndRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		time.Sleep(300 * time.Millisecond)
		if w := p.post("/v1/acquire", `{"provider":"p","permits":10}`); w.Code != 200 ||
			w.Body.String() != `{"permits":10,"until":"2000-01-01T00:00:01Z","expires_in":0.700000}`+"\n" {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		w := p.post("/v1/acquire", `{"provider":"p"}`)
		const want = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The quota for such requests is used up","status":429,"violated-policies":["p-1s"],"detail":"p: no permit: the limit of 10/s is used up; next at 00:00:01.000 UTC","retry_after":0.7}`
		if got := strings.TrimSpace(w.Body.String()); w.Code != 429 || got != want {
			t.Errorf("%d %s", w.Code, got)
		}
		for field, want := range map[string]string{"Retry-After": "1", "RateLimit": `"p-1s";r=0;t=1`, "RateLimit-Policy": `"p-1s";q=10;w=1`} {
			if got := w.Header().Get(field); got != want {
				t.Errorf("%s: %s, want %s", field, got, want)
			}
		}
		// A call that waits, and its permit is of the next window.
		if w := p.post("/v1/acquire", `{"provider":"p","max_wait":1}`); w.Code != 200 ||
			w.Body.String() != `{"permits":1,"until":"2000-01-01T00:00:02Z","expires_in":1.700000}`+"\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A batch is refused for the permits that it could not have: there is more of it after the second, and not after the
// hour, which has fewer left than it wants at most.
func TestABatchIsNotSentBackForAllThatItWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, err := quota.ParseLimits("10/s,60/h")
		if err != nil {
			t.Fatal(err)
		}
		p := newProcess(t, serverOf(t, consumer.Fixed(quota.Policy{Limits: limits}), roomy), "one")
		const batch = `{"provider":"p","permits":100,"partial":true}`
		p.post("/v1/acquire", batch)
		w := p.post("/v1/acquire", batch)
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"violated-policies":["p-1s"]`) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

// setBack is a source on a machine whose clock was set back by an hour after the start.
type setBack struct {
	*consumer.FixedSource
	clock *clock.Clock
}

func (s setBack) Clock() *clock.Clock { return s.clock }

// Callers are told times by the clock of the windows, which the machine's may have left.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}})
		s := serverOf(t, setBack{source, clock.NewSkewed(func(int64) time.Duration { return time.Hour })}, roomy)
		p := newProcess(t, s, "one")
		for range 2 {
			p.post("/v1/acquire", `{"partial":true,"provider":"p","permits":10}`)
			time.Sleep(250 * time.Millisecond)
		}
		for _, body := range []string{`{"provider":"p"}`, `{"provider":"p","partial":true}`} {
			w := p.post("/v1/acquire", body)
			if !strings.Contains(w.Body.String(), `"retry_after":0.5}`) || w.Header().Get("RateLimit") != `"p-1s";r=0;t=1` {
				t.Errorf("%s: %s %s", body, w.Header().Get("RateLimit"), w.Body)
			}
		}
		if w := p.do(t.Context(), "GET", "/v1/providers/p", ""); !strings.Contains(w.Body.String(), `"resets_in":0.5}`) || !strings.Contains(w.Body.String(), `"open_for":0.5,`) {
			t.Errorf("%s", w.Body)
		}
	})
}

// A client that goes away while it waits leaves the queue; one that goes at the moment of
// the grant gives its permit back.
func TestClientGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 200 {
			t.Fatal(w.Code)
		}
		for n := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(n+1)*100*time.Millisecond, cancel)
			go p.do(ctx, "POST", "/v1/acquire", `{"provider":"p","max_wait":30}`)
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		if n := waiting(s); n != 0 {
			t.Errorf("%d calls wait whose clients have gone", n)
		}
		gone, cancel := context.WithCancel(t.Context())
		time.AfterFunc(400*time.Millisecond, cancel)
		answered := p.do(&late{gone}, "POST", "/v1/acquire", `{"provider":"p","max_wait":30}`)
		if answered.Code != 503 {
			t.Errorf("%d %s", answered.Code, answered.Body)
		}
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 200 {
			t.Errorf("the permit of a client that has gone is lost: %s", w.Body)
		}
	})
}

// waiting returns how many calls wait for permits of p.
func waiting(s *Server) int {
	status, _ := s.host.Status("p")
	return status.Waiting
}

// late is a context whose end is noticed only by those that ask for the error.
type late struct{ context.Context }

func (*late) Done() <-chan struct{} { return nil }

// A client whose connection is gone when the answer is sent gives its permit back.
func TestUndeliveredPermitIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		for _, body := range []string{`{"provider":"p"}`, `{"provider":"p","partial":true}`, `{"provider":"p","settle_within":9}`, `{"wants":[{"provider":"p"}]}`} {
			r := httptest.NewRequest(http.MethodPost, "/v1/acquire", strings.NewReader(body)).WithContext(context.WithValue(t.Context(), connectionKey{}, p.c))
			r.Header.Set("Content-Type", "application/json")
			s.Handler.ServeHTTP(broken{httptest.NewRecorder()}, r)
		}
		if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != 200 {
			t.Errorf("%s", w.Body)
		}
		if n := len(s.clients.grants) + len(s.clients.ids); n != 0 {
			t.Errorf("%d IDs of clients that never heard of them", n)
		}
	})
}

type broken struct{ http.ResponseWriter }

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// The deadline for a request's body does not end the wait for its permit.
func TestWaitOutlastsTheBodysDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		for body, want := range map[string]int{`{"provider":"p"}`: 0, `{"provider":"p","max_wait":1}`: 1} {
			r := httptest.NewRequest(http.MethodPost, "/v1/acquire", strings.NewReader(body)).WithContext(context.WithValue(t.Context(), connectionKey{}, p.c))
			r.Header.Set("Content-Type", "application/json")
			w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
			s.Handler.ServeHTTP(w, r)
			if len(w.set) != want || want > 0 && !w.set[0].IsZero() {
				t.Errorf("%s: deadlines %v", body, w.set)
			}
		}
	})
}

type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// At the end the calls that wait are told so.
func TestShutdownRefusesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		ctx, cancel := context.WithCancelCause(t.Context())
		p.post("/v1/acquire", `{"provider":"p"}`)
		time.AfterFunc(100*time.Millisecond, func() { cancel(host.ErrClosed) })
		w := p.do(ctx, "POST", "/v1/acquire", `{"provider":"p","max_wait":30}`)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "quotad is stopping: try again") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// A call whose limiter is closed meanwhile is told that quotad is stopping: its program has closed nothing.
func TestAClosedLimiterIsQuotadStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newServer(t, 1, roomy)
		p := newProcess(t, s, "one")
		p.post("/v1/acquire", `{"provider":"p"}`)
		time.AfterFunc(100*time.Millisecond, func() { _ = s.host.Close() })
		w := p.post("/v1/acquire", `{"provider":"p","max_wait":30}`)
		if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"detail":"quotad is stopping: try again"`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// pipe is a listener with one connection in memory.
type pipe struct{ conns chan net.Conn }

func (p pipe) Accept() (net.Conn, error) {
	if c, ok := <-p.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipe) Close() error   { return nil }
func (pipe) Addr() net.Addr { return &net.UnixAddr{} }

// A refusal says why: only a spent share is a quota that is used up.
func TestTitlesTellTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := newServer(t, 10, roomy)
		p := newProcess(t, s, "one")
		says := func(want string) {
			t.Helper()
			if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code == 200 || !strings.Contains(w.Body.String(), `"title":"`+want+`"`) {
				t.Errorf("%d %s, not %s", w.Code, w.Body, want)
			}
		}
		l, err := s.host.Limiter(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		l.PauseUntil(time.Now().Add(time.Minute))
		says("The provider asked for a pause")
		l.Resume()
		paused := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}, {Permits: 5000, Window: time.Hour}}, Mode: quota.ModePause}
		if err := source.Set(paused); err != nil {
			t.Fatal(err)
		}
		says("The provider is paused")
		w := p.post("/v1/acquire", `{"provider":"p"}`)
		if h := w.Header(); w.Code != 503 || h.Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"retry_after":1}`) || h.Get("RateLimit") != "" {
			t.Errorf("nobody knows when it is resumed, and least the hour's end: %d %v %s", w.Code, h, w.Body)
		}
	})
	joining := consumer.LimitError{Provider: "p", Reason: consumer.ReasonJoining}
	title, detail := ratefields.Name{}.Refuse(http.Header{}, 503, nil, 1, joining, time.Now()).Title, ratefields.Detail(joining)
	if title != "Not ready yet" || detail != "p: no permit: this instance has no share yet, and nothing borrowed is left" {
		t.Errorf("%s: %s", title, detail)
	}
}

// To be not ready is another thing than to admit nothing.
func TestNotReady(t *testing.T) {
	s, _ := newServer(t, 10, roomy)
	s.host.Drain()
	p := newProcess(t, s, "one")
	w := p.do(t.Context(), http.MethodGet, "/readyz", "")
	if body := w.Body.String(); w.Code != http.StatusServiceUnavailable || !strings.Contains(body, `"title":"Not ready"`) || !strings.Contains(body, "stopping") {
		t.Errorf("%d %s", w.Code, body)
	}
	if w := p.post("/v1/acquire", `{"provider":"p"}`); w.Code != http.StatusOK {
		t.Errorf("a call: %d %s", w.Code, w.Body)
	}
}
