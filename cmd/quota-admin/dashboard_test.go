package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/webguard"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// TestDashboardRefusesUnsafeFlags: what others can reach demands TLS and a login,
// and a login that can be trusted.
func TestDashboardRefusesUnsafeFlags(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "tokens")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, open := file("ann 0123456789-0123456789-ann\n"), file("ann 0123456789-0123456789-ann\n")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:8686"}, "say by --host"},
		{[]string{"--listen", ":8686", "--host", "q.test"}, "give --tls-cert and --tls-key"},
		{[]string{"--listen", "192.0.2.1:8686", "--token-file", good}, "give --tls-cert and --tls-key"},
		{[]string{"--listen", "192.0.2.1:8686", "--identity-header", "X-User", "--trusted-proxy", "192.0.2.7/32"}, "give --tls-cert and --tls-key"},
		{[]string{"--tls-cert", "x"}, "belong together"},
		{[]string{"--listen", "nowhere"}, "write HOST:PORT"},
		{[]string{"--identity-header", "X-User"}, "belong together"},
		{[]string{"--trusted-proxy", "10.0.0.0/8"}, "belong together"},
		{[]string{"--identity-header", "X-User", "--trusted-proxy", "anywhere"}, "write a network"},
		{[]string{"--identity-header", "X-User", "--trusted-proxy", "10.0.0.0/8", "--token-file", good}, "choose one"},
		{[]string{"--token-file", file("short")}, "can be guessed"},
		{[]string{"--token-file", file(" ")}, "is empty"},
		{[]string{"--token-file", "/none/such"}, "no such file"},
		{[]string{"--token-file", open}, "can be read or changed by every user"},
		{[]string{"--identity-header", "X-User", "--trusted-proxy", "0.0.0.0/0"}, "any host there could forge"},
		{[]string{"--identity-header", "X-User", "--trusted-proxy", "0.0.0.0/1,128.0.0.0/1"}, "any host there could forge"},
		{[]string{"--identity-header", "X-User", "--trusted-proxy", "::/0"}, "any host there could forge"},
	} {
		b := newBench(t, server)
		_, stderr := b.want(exitUsage, append([]string{"dashboard"}, c.args...)...)
		if !strings.Contains(stderr, c.want) {
			t.Errorf("%q: %s", c.args, stderr)
		}
		if strings.Contains(stderr, "0123456789") {
			t.Errorf("%q: the error holds a token: %s", c.args, stderr)
		}
	}
}

// dashboardPlanOf parses flags as the command does.
func dashboardPlanOf(t *testing.T, f dashboardFlags, env map[string]string) *dashboardFlags {
	t.Helper()
	if f.listen == "" {
		f.listen = "127.0.0.1:0"
	}
	a := &app{etcd: &etcdflags.Flags{}, env: func(n string) string { return env[n] }}
	if err := f.plan(a.dashboardCommand(), a.env); err != nil {
		t.Fatal(err)
	}
	return &f
}

func TestWhoMayLookAndWrite(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAuthor: "ann@host"}
	if p := dashboardPlanOf(t, dashboardFlags{}, env); p.guard.Anybody != "ann@host" || p.token != "" || p.writes {
		t.Errorf("by default: %+v", p)
	}
	// Another user of this machine must not write with the operator's roles.
	if p := dashboardPlanOf(t, dashboardFlags{writes: true}, env); p.guard.Anybody != "" || p.guard.Tokens == nil || len(p.token) < webguard.MinToken {
		t.Errorf("with writes: %+v", p)
	}
	env[envToken] = "0123456789-0123456789-ann"
	if p := dashboardPlanOf(t, dashboardFlags{writes: true}, env); p.guard.Tokens == nil || p.token != "" {
		t.Errorf("with a token of one's own: %+v", p)
	}
}

// site serves the dashboard of a plan in-process.
type site struct {
	t      *testing.T
	server *httptest.Server
	client *clientv3.Client
	bench  *bench
	page   *dashboard.Server
}

func newSite(t *testing.T, f dashboardFlags) *site {
	t.Helper()
	b := newBench(t, server)
	client, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	a := &app{stdout: io.Discard, stderr: io.Discard, env: func(n string) string { return b.env[n] }, etcd: &etcdflags.Flags{Prefix: b.prefix}}
	p := dashboardPlanOf(t, f, b.env)
	p.guard = webguard.Guard{Hosts: loopbackHosts, Anybody: "carol"}
	d, err := a.newDashboard(client, p)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, server: httptest.NewServer(d.Handler()), client: client, bench: b, page: d}
	t.Cleanup(s.server.Close)
	return s
}

// post sends a change as the page does, and returns status and answer.
func (s *site) post(path string, body any) (int, map[string]any) {
	s.t.Helper()
	text, ok := body.(string)
	if !ok {
		encoded, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		text = string(encoded)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path, strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Origin", s.server.URL)
	r.Header.Set("Content-Type", "application/json")
	a, err := s.server.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer a.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(a.Body).Decode(&answer); err != nil {
		s.t.Fatal(err)
	}
	return a.StatusCode, answer
}

// seen is a part of what a page is sent.
type seen struct {
	State struct {
		Etcd      struct{ OK bool }
		Providers []struct{ Provider, Limits, Problem string }
		Detail    *struct{ Provider, Pace string }
	}
}

// first returns what a page is sent first that opens a provider.
func (s *site) first(provider string) (m seen) {
	s.t.Helper()
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	go s.page.Follow(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/api/events?provider="+url.QueryEscape(provider), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.server.Client().Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&m); err != nil {
		s.t.Fatal(err)
	}
	return m
}

// TestChangesOnThePage: the guard rails of set, and an author that the request
// cannot choose.
func TestChangesOnThePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{writes: true})
	s.bench.want(exitDone, "set", "p", "100/s")
	revision := func() int64 {
		var got struct {
			Revision int64 `json:"revision"`
		}
		out, _ := s.bench.want(exitDone, "get", "p", "-o", "json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatal(err)
		}
		return got.Revision
	}
	change := func(more map[string]any) map[string]any {
		c := map[string]any{"provider": "p", "kind": "set", "limits": "200/s", "reason": "because", "force": false, "if_revision": revision()}
		maps.Copy(c, more)
		return c
	}
	type m = map[string]any
	for _, c := range []struct {
		name, path string
		body       any
		status     int
		want       string
	}{
		{"a preview", "/api/preview", change(nil), 200, "100/s"},
		{"a step too far, previewed", "/api/preview", change(m{"limits": "10000/s"}), 200, "100 times as much"},
		{"a step too far", "/api/change", change(m{"limits": "10000/s"}), 422, "100 times as much"},
		{"a wrong unit", "/api/change", change(m{"limits": "100/1m"}), 422, "60 times less"},
		{"another revision", "/api/change", change(m{"if_revision": revision() - 1}), 409, "changed by somebody else"},
		{"any revision", "/api/change", change(m{"if_revision": -1}), 400, "if_revision"},
		{"no revision", "/api/change", change(m{"if_revision": 0}), 400, "if_revision"},
		{"no reason", "/api/change", change(m{"reason": " "}), 400, "say why"},
		{"a long reason", "/api/change", change(m{"reason": strings.Repeat("x", 2000)}), 422, "at most 1024 bytes"},
		{"limits that are none", "/api/change", change(m{"limits": "many"}), 400, ""},
		{"no such provider", "/api/change", change(m{"provider": "q"}), 404, "no policy"},
		{"a provider that cannot be", "/api/change", change(m{"provider": "../../policy"}), 400, ""},
		{"an author of its own", "/api/change", change(m{"author": "root"}), 400, "unknown field"},
		{"another kind", "/api/change", change(m{"kind": "delete"}), 400, "kind"},
		{"no JSON", "/api/change", "limits=1/s", 400, "cannot be read"},
		{"two at once", "/api/change", `{"provider":"p"}{"provider":"q"}`, 400, ""},
	} {
		status, answer := s.post(c.path, c.body)
		if text := fmt.Sprint(answer); status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %v; want %d with %q", c.name, status, answer, c.status, c.want)
		}
	}
	if out, _ := s.bench.want(exitDone, "get", "p"); !strings.Contains(out, "100/s") {
		t.Errorf("something was written: %s", out)
	}
	if status, answer := s.post("/api/change", change(m{"limits": "10000/s", "force": true})); status != 200 {
		t.Errorf("with force: %d %v", status, answer)
	}
	if status, answer := s.post("/api/change", change(m{"kind": "pause"})); status != 200 {
		t.Errorf("pause: %d %v", status, answer)
	}
	s.bench.put(s.client, "providers/p/throttle", "{}")
	for _, path := range []string{"/api/preview", "/api/change"} {
		if status, answer := s.post(path, change(m{"kind": "resume"})); status != 200 {
			t.Errorf("resume: %d %v", status, answer)
		}
		r, err := s.client.Get(t.Context(), s.bench.prefix+"providers/p/throttle", clientv3.WithCountOnly())
		if err != nil || (r.Count == 0) != (path == "/api/change") {
			t.Errorf("%s: %d throttles are left, %v", path, r.Count, err)
		}
	}
	out, _ := s.bench.want(exitDone, "history", "p")
	if n := strings.Count(out, "carol"); n != 3 {
		t.Errorf("carol made %d changes:\n%s", n, out)
	}
}

func TestADashboardIsReadOnlyUnlessAllowed(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{})
	s.bench.want(exitDone, "set", "p", "100/s")
	for _, path := range []string{"/api/change", "/api/preview"} {
		if status, answer := s.post(path, map[string]any{"provider": "p", "kind": "pause", "reason": "x", "if_revision": 1}); status != 403 {
			t.Errorf("%s: %d %v", path, status, answer)
		}
	}
}

// TestAKeyThatNamesNoProviderHidesNothing: somebody who may write any key could make
// the page say that etcd is away, for as long as it lay there.
func TestAKeyThatNamesNoProviderHidesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{})
	s.bench.want(exitDone, "set", "p", "100/s")
	s.bench.put(s.client, "providers/evil%1B%5B31m/policy", "{}")
	if m := s.first("p"); !m.State.Etcd.OK || m.State.Detail == nil || len(m.State.Providers) != 2 || m.State.Providers[0].Problem == "" {
		t.Errorf("%+v", m)
	}
	stdout, _ := s.bench.want(exitFailed, "doctor", "-o", "json")
	if !strings.Contains(stdout, "no instance can ask for it") || !strings.Contains(stdout, "at policy revision") && !strings.Contains(stdout, "0 instances") {
		t.Errorf("doctor: %s", stdout)
	}
}

func TestThePaceIsOnThePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{})
	paced(s.bench, s.client)
	if m := s.first("payments/charge"); m.State.Detail == nil || m.State.Detail.Pace != "588/s,17640/1m" {
		t.Errorf("%+v", m)
	}
}

// TestObserversOnlyWhileSomebodyLooks: instances report every second for as long
// as a page is open, and no longer.
func TestObserversOnlyWhileSomebodyLooks(t *testing.T) {
	t.Parallel()
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	client, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	observers := func() int64 {
		r, err := client.Get(t.Context(), b.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return r.Count
	}
	ctx, end := context.WithCancel(t.Context())
	a := &app{stdout: io.Discard, stderr: io.Discard, env: func(n string) string { return b.env[n] }, etcd: &etcdflags.Flags{Prefix: b.prefix}}
	admin, err := a.admin(client, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	d := dashboard.New(dashboard.Options{Admin: admin, Guard: dashboardPlanOf(t, dashboardFlags{}, b.env).guard, Log: a.log(), Grace: 10 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, l, nil) }()
	wait := func(what string, want int64) {
		t.Helper()
		await.Until(t, fmt.Sprintf("%s: %d observers", what, want), func() bool { return observers() == want })
	}
	wait("before", 0)
	look, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(look, http.MethodGet, "http://"+l.Addr().String()+"/api/events?provider=p", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	wait("while somebody looks", 1)
	leave()
	_ = answer.Body.Close()
	wait("after the page was closed", 0)
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
