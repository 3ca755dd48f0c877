package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/dashboard"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/live"
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/internal/cli/etcdflags"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// What others can reach needs TLS and users, by a file that can be read.
func TestTheDashboardListensNearbyOrSafely(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--listen", "0.0.0.0:8686"}, "can be reached from other hosts"},
		{[]string{"--listen", ":8686", "--host", "q.test"}, "listen on 127.0.0.1"},
		{[]string{"--listen", "nowhere"}, "write HOST:PORT"},
		{[]string{"--web.config.file", "/none/such"}, "no such file"},
	} {
		b := newBench(t, server)
		if _, stderr := b.want(exitUsage, append([]string{"dashboard"}, c.args...)...); !strings.Contains(stderr, c.want) {
			t.Errorf("%q: %s", c.args, stderr)
		}
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
	d, err := a.newDashboard(client, &f)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, server: httptest.NewServer(d.Handler()), client: client, bench: b, page: d}
	t.Cleanup(s.server.Close)
	return s
}

// seen is a part of what a page is sent.
type seen struct {
	State struct {
		Etcd      struct{ OK bool }
		Providers []struct{ Provider, Limits, Problem string }
		Detail    *struct{ Provider string }
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

// The page reads, and answers by its own names only: another's page whose name was made to
// point here asks by that name.
func TestThePageOnlyReads(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashboardFlags{hosts: []string{"quota.example.com"}})
	s.bench.want(exitDone, "set", "p", "100/s")
	for _, c := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/", "", 200}, {"GET", "/api/history?provider=p", "localhost:99", 200}, {"GET", "/page.js", "QUOTA.example.com", 200},
		{"GET", "/", "evil.example.com", 421}, {"GET", "/api/history?provider=p", "127.0.0.1.evil.example.com", 421},
		{"POST", "/api/history?provider=p", "", 405}, {"DELETE", "/api/events", "", 405}, {"POST", "/api/change", "", 405}, {"PUT", "/", "", 405},
		{"GET", "/api/history?provider=../../policy", "", 400}, {"GET", "/api/change", "", 404}, {"GET", "/../dashboard.go", "", 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		answer, err := s.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.status || !strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s by %q: %d, want %d; %v", c.method, c.path, c.host, answer.StatusCode, c.status, answer.Header)
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

// TestObserversOnlyWhileSomebodyLooks: instances report every second for as long
// as a page is open, and no longer.
func TestObserversOnlyWhileSomebodyLooks(t *testing.T) {
	t.Parallel()
	a, operator, observers := newBench(t, server).observed()
	ctx, end := context.WithCancel(t.Context())
	d := dashboard.New(dashboard.Options{Admin: operator, Log: a.log(), Grace: 10 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, l, "") }()
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

// A provider whose rate was read stays observed until the watcher is closed: whoever waits for its
// reports has them each second.
func TestARateLeavesItsProviderObserved(t *testing.T) {
	t.Parallel()
	_, operator, observers := newBench(t, server).observed()
	w := live.NewWatcher(operator, 1)
	defer w.Close()
	if _, err := w.Rate(t.Context(), "p", time.Minute); err != nil {
		t.Fatal(err)
	}
	for range 200 { // an observation that has ended takes its key away soon
		if n := observers(); n != 1 {
			t.Fatalf("%d observers, want 1", n)
		}
	}
}

// observed sets a policy of a provider p. It returns an operator, and what counts those that observe.
func (b *bench) observed() (a *app, operator *admin.Client, observers func() int64) {
	b.t.Helper()
	b.want(exitDone, "set", "p", "100/s")
	client, err := server.Client()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = client.Close() })
	a = &app{stdout: io.Discard, stderr: io.Discard, env: func(n string) string { return b.env[n] }, etcd: &etcdflags.Flags{Prefix: b.prefix}}
	if operator, err = a.admin(client, time.Minute); err != nil {
		b.t.Fatal(err)
	}
	return a, operator, func() int64 {
		r, err := client.Get(b.t.Context(), b.prefix+"observers/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			b.t.Fatal(err)
		}
		return r.Count
	}
}
