package webguard

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	annsToken = "ann-0123456789-0123456789"
	bobsToken = "bob-0123456789-0123456789"
)

// guarded returns a handler that answers who is there, behind a guard.
func guarded(t *testing.T, change func(*Guard)) http.Handler {
	t.Helper()
	g := &Guard{Hosts: []string{"quota.test"}, Public: func(p string) bool { return p == "/" }, Log: quietLog()}
	if change != nil {
		change(g)
	}
	if g.Header == "" && g.Tokens == nil {
		g.Anybody = "ann@host"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			WriteJSON(w, http.StatusRequestEntityTooLarge, map[string]string{"error": err.Error()})
			return
		}
		_, _ = io.WriteString(w, "hello "+Identity(r.Context()))
	})
	return g.Wrap(mux)
}

// request returns one that passes, but for what change does.
func request(method, target string, change func(*http.Request)) *http.Request {
	body := ""
	if method == http.MethodPost {
		body = "{}"
	}
	r := httptest.NewRequest(method, "http://quota.test"+target, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://quota.test")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/json")
	}
	if change != nil {
		change(r)
	}
	return r
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func header(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

type attempt struct {
	name   string
	method string
	change func(*http.Request)
	want   int
}

func try(t *testing.T, h http.Handler, all []attempt) {
	t.Helper()
	for _, a := range all {
		if w := answer(h, request(a.method, "/api/x", a.change)); w.Code != a.want {
			t.Errorf("%s: %d, want %d: %s", a.name, w.Code, a.want, w.Body)
		}
	}
}

func TestOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	const get, post = http.MethodGet, http.MethodPost
	try(t, guarded(t, nil), []attempt{
		{"a read", get, nil, 200},
		{"a write of the page", post, nil, 200},
		{"a write without Sec-Fetch-Site, as of an older browser", post, header("Sec-Fetch-Site"), 200},
		{"a write that does not say where it comes from", post, header("Origin"), 403},
		{"nor anything else", post, func(r *http.Request) { r.Header.Del("Origin"); r.Header.Del("Sec-Fetch-Site") }, 403},
		{"a write of another site", post, header("Origin", "http://evil.test"), 403},
		{"a write of another site, by Sec-Fetch-Site alone", post, header("Sec-Fetch-Site", "cross-site"), 403},
		{"a write of a sister site", post, header("Sec-Fetch-Site", "same-site"), 403},
		{"a write of another port", post, header("Origin", "http://quota.test:81"), 403},
		{"a write of a sandboxed frame", post, header("Origin", "null"), 403},
		{"a write with two origins", post, header("Origin", "http://quota.test", "http://evil.test"), 403},
		{"a write whose origin only begins like ours", post, header("Origin", "http://quota.test.evil.test"), 403},
		{"a read by another site's script", get, header("Sec-Fetch-Site", "cross-site"), 403},
		{"a read by a sister site's", get, header("Sec-Fetch-Site", "same-site"), 403},
		{"a read with another's origin", get, header("Origin", "http://evil.test"), 403},
		{"a form of another site", post, header("Content-Type", "application/x-www-form-urlencoded"), 415},
		{"a form that sends text", post, header("Content-Type", "text/plain"), 415},
		{"another method", http.MethodPut, nil, 405},
		{"what asks before a request", http.MethodOptions, header("Origin", "http://evil.test"), 405},
	})
}

// A link may lead to the page, and to nothing else.
func TestAnotherSiteMayLinkToThePage(t *testing.T) {
	t.Parallel()
	h := guarded(t, nil)
	link := func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	}
	if w := answer(h, request(http.MethodGet, "/", link)); w.Code != 200 {
		t.Errorf("a link to the page: %d", w.Code)
	}
	if w := answer(h, request(http.MethodGet, "/api/history", link)); w.Code != 403 {
		t.Errorf("a link past the page: %d", w.Code)
	}
	if w := answer(h, request(http.MethodGet, "/", func(r *http.Request) { link(r); r.Header.Set("Sec-Fetch-Dest", "iframe") })); w.Code != 403 {
		t.Errorf("the page in a frame: %d", w.Code)
	}
}

// DNS rebinding: the attacker's page has a name that was made to point here.
func TestOtherHostNamesAreRefused(t *testing.T) {
	t.Parallel()
	h := guarded(t, func(o *Guard) { o.Hosts = []string{"quota.test", "127.0.0.1", "::1"} })
	for host, want := range map[string]int{
		"quota.test": 200, "QUOTA.test": 200, "quota.test:8686": 200, "127.0.0.1:8686": 200, "[::1]:8686": 200,
		"evil.test": 421, "quota.test.evil.test": 421, "127.0.0.1.nip.io": 421, "": 421, "127.0.0.2": 421, "quota.test@evil.test": 421, "[::1": 421,
	} {
		if w := answer(h, request(http.MethodGet, "/api/x", func(r *http.Request) { r.Host = host })); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}

func TestPathTricksAreRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(guarded(t, func(o *Guard) { o.Hosts = []string{"127.0.0.1"} }))
	defer server.Close()
	for _, path := range []string{
		"/../../etc/passwd", "/assets/../page.js", "//evil.test/", "//", "/./", "/a//b", "/api/history/", "/%2e%2e/%2e%2e/etc/passwd",
		"/..%2f..%2fetc/passwd", "/%2fetc/passwd", "/a%5c..%5cb", `/a\..\b`, "/%00", "/page.js%00.png", "/%252e%252e/x", "/a;/../b",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", path)
		said, _ := io.ReadAll(conn)
		conn.Close()
		status, _, _ := strings.Cut(string(said), "\r\n")
		if !strings.Contains(status, " 400 ") || strings.Contains(string(said), "Location:") {
			t.Errorf("%s: %s", path, status)
		}
	}
}

func TestOversizedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	large := strings.NewReader(strings.Repeat(" ", MaxBody+1))
	for name, length := range map[string]int64{"that says its length": MaxBody + 1, "in chunks": -1} {
		_, _ = large.Seek(0, io.SeekStart)
		r := request(http.MethodPost, "/api/x", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(large), length })
		if w := answer(guarded(t, nil), r); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("a body %s: %d", name, w.Code)
		}
	}
	r := request(http.MethodGet, "/api/x", func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(large), MaxBody })
	if w := answer(guarded(t, nil), r); w.Code != http.StatusBadRequest {
		t.Errorf("a read with a body: %d", w.Code)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(guarded(t, func(o *Guard) { o.Hosts = []string{"127.0.0.1"} }), quietLog())
	server.Start()
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	a, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("large headers: %s", a.Status)
	}
}

// Who sends a byte now and then is let go, in the headers and in the body.
func TestSlowRequestsAreLetGo(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config = Server(guarded(t, func(o *Guard) { o.Hosts = []string{"127.0.0.1"} }), quietLog())
	if c := server.Config; c.ReadHeaderTimeout <= 0 || c.ReadTimeout <= 0 || c.WriteTimeout <= 0 || c.IdleTimeout <= 0 {
		t.Errorf("a server without a bound: %+v", c)
	}
	server.Config.ReadHeaderTimeout /= 100
	server.Config.ReadTimeout /= 100
	server.Start()
	defer server.Close()
	for _, begin := range []string{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
		"POST /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprint(conn, begin)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("%.10q...: the server still waits: %v", begin, err)
		}
	}
}

func TestHeadersAllowNoException(t *testing.T) {
	t.Parallel()
	for _, r := range []*http.Request{
		request(http.MethodGet, "/", nil), request(http.MethodGet, "/api/x", nil), request(http.MethodPut, "/", nil),
		request(http.MethodGet, "/", func(r *http.Request) { r.Host = "evil.test" }),
	} {
		h := answer(guarded(t, nil), r).Header()
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "trusted-types 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s %s: the policy lacks %q: %s", r.Method, r.URL, want, csp)
			}
		}
		for _, bad := range []string{"unsafe", "data:", "blob:", "*", "http", "nonce"} {
			if strings.Contains(csp, bad) {
				t.Errorf("%s %s: the policy has %q: %s", r.Method, r.URL, bad, csp)
			}
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Access-Control-Allow-Origin": "",
		} {
			if got := h.Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", r.Method, r.URL, name, got, want)
			}
		}
	}
	secure := answer(guarded(t, nil), request(http.MethodGet, "/", func(r *http.Request) { r.TLS = &tls.ConnectionState{} }))
	if secure.Header().Get("Strict-Transport-Security") == "" {
		t.Error("https is not insisted on")
	}
}

// Where the page is reached by https, the same name by http is another site.
func TestPlainOriginOfASecurePage(t *testing.T) {
	t.Parallel()
	secure := func(r *http.Request) { r.TLS = &tls.ConnectionState{}; r.Header.Del("Sec-Fetch-Site") }
	if w := answer(guarded(t, nil), request(http.MethodPost, "/api/x", secure)); w.Code != 403 {
		t.Errorf("%d", w.Code)
	}
	r := request(http.MethodPost, "/api/x", func(r *http.Request) { secure(r); r.Header.Set("Origin", "https://quota.test") })
	if w := answer(guarded(t, nil), r); w.Code != 200 {
		t.Errorf("%d", w.Code)
	}
}
