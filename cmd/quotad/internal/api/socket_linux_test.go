package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/pflag"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/listen"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/certs"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
	"github.com/quotient-limiter/quotient/quota"
)

// serve serves until the test ends.
func serve(t *testing.T, s *Server) *Server {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(s.Shutdown(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	})
	return s
}

// listening serves by flags.
func listening(t *testing.T, source consumer.Source, f Flags) *Server {
	t.Helper()
	h := newHost(t, source)
	s, err := f.Listen(h, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, s.(*Server))
}

// A port in use fails before the socket is touched, so that no other process loses it.
func TestPortBeforeSocket(t *testing.T) {
	t.Parallel()
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	dir := t.TempDir()
	f := Flags{TLS: &listen.TLS{}, Group: new(string), socket: filepath.Join(dir, "quotad.sock"), listen: port.Addr().String(), limits: roomy}
	s, err := f.Listen(newHost(t, fixed(1)), quiet)
	if err == nil || !strings.Contains(err.Error(), "--listen: ") {
		t.Fatalf("%v, %v", s, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

func serveSocket(t *testing.T, permits int64, l limits) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotad.sock")
	return listening(t, fixed(permits), Flags{Group: new(string), socket: path, limits: l}), path
}

// serveSlowly serves one permit in each window.
func serveSlowly(t *testing.T, window time.Duration) (*Server, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "quotad.sock")
	source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 1, Window: window}}})
	return listening(t, source, Flags{Group: new(string), socket: path, limits: roomy}), path
}

// caller is a connection that sends requests as text.
type caller struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, path string) caller {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return caller{c, bufio.NewReader(c)}
}

func (c caller) send(t *testing.T, path, body string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: quotad\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		t.Fatal(err)
	}
}

func (c caller) answer(t *testing.T) (status int, body string) {
	t.Helper()
	a, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

func TestSocket(t *testing.T) {
	s, path := serveSocket(t, 1000, roomy)
	if info, err := os.Stat(path); err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	c := dial(t, path)
	for range 3 {
		c.send(t, "/v1/acquire", `{"provider":"p","max_wait":5}`)
		if status, body := c.answer(t); status != 200 || !strings.Contains(body, `"permits":1`) {
			t.Errorf("%d %s", status, body)
		}
	}
	all := s.clients.connections.Clients()
	if name := fmt.Sprintf("process %d of user %d", os.Getpid(), os.Getuid()); all[name] != 1 {
		t.Errorf("%s is not among %v", name, all)
	}
}

// A process that dies while its calls wait takes none of the next permits.
func TestDeadClientLeavesTheQueue(t *testing.T) {
	s, path := serveSlowly(t, 10*time.Second) // the last waits for 40 s
	callers := make([]caller, 5)
	for i := range callers {
		callers[i] = dial(t, path)
		callers[i].send(t, "/v1/acquire", `{"provider":"p","permits":1,"max_wait":60}`)
	}
	await.Until(t, "calls wait", func() bool { return waiting(s) > 0 })
	for _, c := range callers {
		_ = c.Close()
	}
	await.Until(t, "no call waits", func() bool { return waiting(s) == 0 })
	await.Until(t, "the connections are gone", func() bool {
		clients, open := count(t, s)
		return clients == 0 && open == 0
	})
}

// A client that says nothing does not hold up the end, and a call that waits is told.
func TestShutdown(t *testing.T) {
	s, path := serveSlowly(t, time.Minute)
	dial(t, path)
	c := dial(t, path)
	for range 2 {
		c.send(t, "/v1/acquire", `{"provider":"p","max_wait":60}`)
	}
	if status, body := c.answer(t); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	await.Until(t, "a call waits", func() bool { return waiting(s) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(ctx) }()
	if status, body := c.answer(t); status != 503 || !strings.Contains(body, "quotad is stopping: try again") {
		t.Errorf("%d %s", status, body)
	}
	cancel() // the time is up
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s, path := serveSocket(t, 1000, limits{connections: 100, perClient: 3})
	var open []caller
	for range 3 {
		c := dial(t, path)
		c.send(t, "/v1/acquire", `{"provider":"p"}`)
		if status, body := c.answer(t); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		open = append(open, c)
	}
	status, body := dial(t, path).answer(t) // before it asks for anything
	if want := fmt.Sprintf(`{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"process %d of user %d has 3 connections, which is the most (--client-connections): wait for answers before sending more","retry_after":1}`, os.Getpid(), os.Getuid()); status != 429 || strings.TrimSpace(body) != want {
		t.Errorf("%d %s", status, body)
	}
	_ = open[0].Close()
	await.Until(t, "there is room", func() bool { _, n := count(t, s); return n == 2 })
	c := dial(t, path)
	c.send(t, "/v1/acquire", `{"provider":"p"}`)
	if status, body := c.answer(t); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if n := testutil.ToFloat64(s.clients.refused.WithLabelValues(connectionBound)); n != 1 {
		t.Errorf("%v refusals are counted", n)
	}
}

func TestAllConnectionsAreBounded(t *testing.T) {
	_, path := serveSocket(t, 1000, limits{connections: 2, perClient: 4})
	for range 2 {
		c := dial(t, path)
		c.send(t, "/v1/acquire", `{"provider":"p"}`)
		if status, body := c.answer(t); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
	}
	if status, body := dial(t, path).answer(t); status != 429 || !strings.Contains(body, "2 connections are open, which is the most (--max-connections)") {
		t.Errorf("%d %s", status, body)
	}
}

// A wrong request is refused wherever it stands on a connection, and takes no permit.
func TestEveryRequestOfAConnectionIsReadAlike(t *testing.T) {
	s, path := serveSocket(t, 1000, roomy)
	const call = `{"provider":"p"}`
	head := "POST /v1/acquire HTTP/1.1\r\nContent-Type: application/json\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(call))
	taken := int64(0)
	for name, request := range map[string]string{
		"a blank in a name":  head + "Host: q\r\nBad Header : x\r\n" + length + "\r\n" + call,
		"no host":            head + length + "\r\n" + call,
		"two hosts":          head + "Host: q\r\nHost: r\r\n" + length + "\r\n" + call,
		"two lengths":        head + "Host: q\r\n" + length + "Content-Length: 5\r\n\r\n" + call,
		"a length with sign": head + "Host: q\r\n" + strings.Replace(length, " ", " +", 1) + "\r\n" + call,
	} {
		for place := range 3 { // the first request of the connection, the second, the third
			c := dial(t, path)
			for range place {
				c.send(t, "/v1/acquire", call)
				if status, body := c.answer(t); status != 200 {
					t.Fatalf("%d %s", status, body)
				}
				taken++
			}
			if _, err := io.WriteString(c, request); err != nil {
				t.Fatal(err)
			}
			if status, body := c.answer(t); status != 400 {
				t.Errorf("%s, after %d calls: %d %s", name, place, status, body)
			}
		}
	}
	if status, _ := s.host.Status("p"); status.Issued != taken {
		t.Errorf("%d permits were issued for %d calls", status.Issued, taken)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	_, path := serveSocket(t, 1000, roomy)
	c := dial(t, path)
	if _, err := fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: q\r\nX: %s\r\n\r\n", strings.Repeat("x", 16<<10)); err != nil {
		t.Fatal(err)
	}
	// The rest of the request is not read, so the answer may be lost.
	if a, err := http.ReadResponse(c.r, nil); err == nil {
		defer a.Body.Close()
		if a.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Error(a.Status)
		}
	}
}

// The sockets of dead and of live processes are replaced, other files are not.
func TestSocketInUse(t *testing.T) {
	_, path := serveSocket(t, 1, roomy)
	open := func(path, group string) error {
		h := newHost(t, fixed(1))
		s, err := (&Flags{Group: &group, socket: path, limits: roomy}).Listen(h, quiet)
		if err == nil {
			serve(t, s.(*Server))
		}
		return err
	}
	if err := open(path, ""); err != nil {
		t.Error(err)
	}
	stale := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	if err := open(stale, ""); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(file, ""); err == nil {
		t.Error("a file was replaced")
	}
	if err := open(stale+"2", "no such group"); err == nil || !strings.Contains(err.Error(), `group "no such group" is neither the name of a group here nor a number below 4294967295`) {
		t.Error(err)
	}
}

// On loopback nobody passes without a certificate that the authority has signed.
func TestTCPDemandsCertificates(t *testing.T) {
	authority := etcdtest.NewAuthority(t)
	stranger := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	f := flags(t, "127.0.0.1:0", cert, key, authority.File)
	f.limits = limits{connections: 100, perClient: 1}
	s := listening(t, fixed(1000), f)
	address := s.Listeners[0].Addr().String()
	acquire := func(ca *etcdtest.Authority, name string) (*http.Response, error) {
		var cert, key string
		if ca != nil {
			cert, key = ca.Issue("client", name)
		}
		secure, err := certs.Client(authority.File, cert, key)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
		t.Cleanup(client.CloseIdleConnections)
		return client.Post("https://"+address+"/v1/acquire", "application/json", strings.NewReader(`{"provider":"p"}`))
	}
	for _, ca := range []*etcdtest.Authority{nil, stranger} {
		if a, err := acquire(ca, "one"); err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
			a.Body.Close()
			t.Errorf("passed: %v", err)
		}
	}
	for _, test := range []struct {
		name, want string
		status     int
	}{
		{"one", `"permits":1`, 200},
		{"one", "certificate CN=one has 1 connections, which is the most", 429}, // the first is kept alive
		{"two", `"permits":1`, 200},
	} {
		a, err := acquire(authority, test.name)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(a.Body)
		_ = a.Body.Close()
		if err != nil || a.StatusCode != test.status || !strings.Contains(string(body), test.want) {
			t.Errorf("%s: %d %s, %v", test.name, a.StatusCode, body, err)
		}
	}
}

func TestListenNamesTheMistake(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	authority := etcdtest.NewAuthority(t)
	cert, key := authority.Issue("server", "localhost")
	for _, test := range []struct{ address, cert, key, ca, want string }{
		{"10.0.0.1:80", cert, key, authority.File, "--listen 10.0.0.1:80: must be an address of loopback, such as 127.0.0.1:8787; other hosts run their own quotad"},
		{":80", cert, key, authority.File, "--listen :80: must be an address of loopback"},
		{"localhost:80", cert, key, authority.File, "--listen localhost:80: must be an address of loopback"},
		{"127.0.0.1:80", "", "", "", "--listen 127.0.0.1:80: needs --tls-cert, --tls-key and --tls-client-ca; the Unix socket needs none"},
		{"127.0.0.1:80", cert, key, "", "--tls-cert, --tls-key and --tls-client-ca: all or none"},
		{"127.0.0.1:0", cert, empty, authority.File, "--listen: certificate"},
		{"127.0.0.1:0", cert, key, empty, "--listen: " + empty + " holds no PEM certificate"},
		{"127.0.0.1:0", cert, key, dir + "/none", "--listen: open"},
	} {
		f := flags(t, test.address, test.cert, test.key, test.ca)
		err := errors.Join(f.TLS.Check(), f.Check())
		if err == nil {
			h := newHost(t, fixed(1))
			_, err = f.Listen(h, quiet)
		}
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}

// A client that ends its side of the connection, and reads on, is not told that it has a
// permit while it has none.
func TestHalfClosedConnection(t *testing.T) {
	_, path := serveSocket(t, 1, roomy)
	for _, body := range []string{`{"provider":"p","max_wait":60}`, `{"provider":"p","max_wait":60,"partial":true}`} {
		first := dial(t, path)
		first.send(t, "/v1/acquire", `{"provider":"p","max_wait":60}`)
		if status, body := first.answer(t); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		c := dial(t, path)
		c.send(t, "/v1/acquire", body)
		if err := c.Conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if status, answer := c.answer(t); status == 200 && !strings.Contains(answer, `"permits":1`) {
			t.Errorf("%s: %d %q", body, status, answer)
		}
	}
}

// flags are those of a listener with TLS.
func flags(t *testing.T, address, cert, key, ca string) (f Flags) {
	t.Helper()
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.TLS, f.Group = &listen.TLS{}, new(string)
	f.TLS.Register(set)
	f.Register(set)
	if err := set.Parse([]string{"--socket=", "--listen", address, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca}); err != nil {
		t.Fatal(err)
	}
	return f
}
