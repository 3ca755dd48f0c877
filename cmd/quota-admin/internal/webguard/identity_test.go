package webguard

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestUpstreamIsBelievedFromItsAddressOnly(t *testing.T) {
	t.Parallel()
	h := guarded(t, func(o *Guard) {
		o.Header, o.Proxies = "X-Remote-User", []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	})
	from := func(address string, names ...string) func(*http.Request) {
		return func(r *http.Request) { r.RemoteAddr = address; r.Header["X-Remote-User"] = names }
	}
	const get = http.MethodGet
	try(t, h, []attempt{
		{"the proxy", get, from("10.1.2.3:4", "ann"), 200},
		{"the proxy, by its mapped address", get, from("[::ffff:10.1.2.3]:4", "ann"), 200},
		{"somebody who says the same", get, from("10.2.2.3:4", "ann"), 403},
		{"somebody who says where it comes from", get, func(r *http.Request) {
			from("192.0.2.1:4", "ann")(r)
			r.Header.Set("X-Forwarded-For", "10.1.2.3")
		}, 403},
		{"the proxy, which does not say who", get, from("10.1.2.3:4"), 401},
		{"nobody", get, from("10.1.2.3:4", ""), 401},
		{"two names: one was sent by the browser", get, from("10.1.2.3:4", "ann", "root"), 401},
		{"a name that forges a line", get, from("10.1.2.3:4", "ann\nroot"), 401},
		{"a name that turns the text", get, from("10.1.2.3:4", "ann\u202e"), 401},
		{"a long name", get, from("10.1.2.3:4", strings.Repeat("a", maxIdentity+1)), 401},
	})
	if w := answer(h, request(get, "/", from("192.0.2.1:4", "ann"))); w.Code != 403 {
		t.Errorf("past the proxy even the page is served: %d", w.Code)
	}
	if w := answer(h, request(get, "/api/x", from("10.1.2.3:4", "ann"))); w.Body.String() != "hello ann" {
		t.Errorf("got %q", w.Body)
	}
}

// TestAGuardThatIsNotSetLetsNobodyIn: neither without a host name, nor without a way
// to tell who is there; a proxy is never passed by.
func TestAGuardThatIsNotSetLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, g := range []*Guard{
		{Hosts: []string{"quota.test"}},
		{Anybody: "ann"},
		{Hosts: []string{"quota.test"}, Anybody: "ann", Header: "X-Remote-User"},
		{Hosts: []string{"quota.test"}, Anybody: "ann", Tokens: Tokens{}},
	} {
		g.Log, g.Public = quietLog(), func(string) bool { return false }
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%+v lets somebody in", g) }))
		if w := answer(h, request(http.MethodGet, "/", nil)); w.Code/100 != 4 {
			t.Errorf("%+v: %d", g, w.Code)
		}
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "127.9.9.9:1": true,
		"0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "localhost.evil.test:1": false, "127.0.0.1": false, "[::]:1": false,
	} {
		if got := Loopback(address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
